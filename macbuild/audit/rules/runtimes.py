"""Check what is loaded into one process: two copies of a runtime, and weak definitions that dyld unifies."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from fnmatch import fnmatchcase

from macbuild.audit.context import AuditContext, Check, Hit, examples
from macbuild.audit.graph import Node
from macbuild.audit.policy import Runtime
from macbuild.audit.tree import AuditedSlice

__all__ = ["CHECKS"]


def _copies(context: AuditContext) -> Iterator[Hit]:
    for runtime in context.parameters.runtimes:
        owners = {
            node
            for node in context.graph.links
            if (entry := context.graph.slice(node)) is not None and _is_copy(entry, runtime)
        }
        if owners:
            yield from _copies_of(context, runtime, owners)


def _is_copy(entry: AuditedSlice, runtime: Runtime) -> bool:
    leaf = posixpath.basename(entry.path)
    return (
        any(fnmatchcase(leaf, glob) for glob in runtime.files)
        or any(name.encode() in entry.markers for name in runtime.defines)
        or any(name.encode() in entry.exports.names for name in runtime.exports)
    )


def _copies_of(context: AuditContext, runtime: Runtime, owners: set[Node]) -> Iterator[Hit]:
    graph, label = context.graph, context.tree.label
    told: set[frozenset[str]] = set()
    hint = "keep one copy and let all files depend on it"
    nodes = sorted((entry.path, entry.arch) for entry in context.linked())
    for node in sorted(nodes, key=lambda node: (len(graph.closures[node]), node)):
        closure = graph.closures[node]
        copies = frozenset(path for path, _ in closure & owners)
        if runtime.system is not None and copies and runtime.system in graph.systems(closure):
            copies |= {runtime.system}
        if len(copies) > 1 and copies not in told:
            told.add(copies)
            listed = ", ".join(path if path.startswith("/") else label(path) for path in sorted(copies))
            message = f"{len(copies)} copies of {runtime.name} are loaded together: {listed}"
            yield Hit("duplicate-runtime", node[0], node[1], message, hint)
    for arch in sorted({arch for _, arch in owners}):
        here = sorted(path for path, other in owners if other == arch and path in context.tree.machos)
        if len(here) > 1 and not any(copies >= set(here) for copies in told):
            listed = ", ".join(label(path) for path in here)
            message = f"{len(here)} files have {runtime.name}; a process must not load two of them: {listed}"
            yield Hit("spare-runtime", here[0], arch, message, hint)


def _weak_definitions(context: AuditContext) -> Iterator[Hit]:
    closures = context.graph.closures
    exports = {(entry.path, entry.arch): entry.exports for entry in context.linked() if entry.exports.names}
    weak = {node for node, found in exports.items() if found.weak}
    together = {
        (min(one, other), max(one, other))
        for closure in set(closures.values())
        for one in closure & weak
        for other in closure & exports.keys()
        if one != other
    }
    for first, second in sorted(together):
        one, other = exports[first], exports[second]
        shared = (one.weak & other.names) | (one.names & other.weak)
        if not shared:
            continue
        related = second in closures[first] or first in closures[second]
        message = (
            f"{len(shared)} weak definitions are also in {context.tree.label(second[0])}; "
            f"dyld takes one of each: {examples(shared)}"
        )
        hint = "nothing to do: both are linked together" if related else "hide them: -fvisibility-inlines-hidden"
        yield Hit("weak-shared" if related else "weak-coalesced", first[0], first[1], message, hint)


CHECKS: tuple[Check, ...] = (_copies, _weak_definitions)
