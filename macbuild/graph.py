"""The steps of a plan as they are collected, each with its key and why it would run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from macbuild.data import Data, from_plain
from macbuild.ingredients import tool_digest
from macbuild.plan import FetchSpec, Kind, Spec, Step
from macbuild.store import Store, digest

__all__ = ["Graph", "filled", "pin_digest"]

T = TypeVar("T", bound=Data)


class Graph:
    """Collects steps; one that is asked for twice is there once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.steps: dict[str, Step] = {}

    def add(self, identity: str, kind: Kind, spec: Spec, facts: dict[str, str], needs: Sequence[Step]) -> Step:
        """Return the step with that id, its key made of the facts and of the keys of what it needs."""
        ingredients = {**facts, **{f"input {step.kind}": step.key for step in needs}}
        if len({step.kind for step in needs}) != len(needs):
            ingredients = {**facts, **{f"input {step.id}": step.key for step in needs}}
        tool = tool_digest(kind)
        if tool:
            ingredients["macbuild"] = tool
        key = digest({"kind": kind, **ingredients})
        cached = self.store.has(key)
        reason = "in store" if cached else self._reason(identity, ingredients)
        step = Step(identity, kind, key, ingredients, tuple(step.id for step in needs), spec, cached, reason)
        self.steps[identity] = step
        return step

    def _reason(self, identity: str, ingredients: Mapping[str, str]) -> str:
        record = self.store.record(identity)
        if record is None:
            return "first time"
        changed = [name for name in {**record, **ingredients} if record.get(name) != ingredients.get(name)]
        return f"{', '.join(sorted(changed))} changed" if changed else "not in store"


def pin_digest(spec: FetchSpec) -> str:
    """Return the identity of the bytes that a source must give."""
    return digest([spec.pin.file, spec.pin.size, spec.pin.sha256])


def filled(values: Sequence[T], names: Mapping[str, str]) -> list[T]:
    """Return structs with `{version}` and `{arch}` replaced in every string."""

    def fill(value: object) -> object:
        if isinstance(value, str):
            return re.sub(r"\{(version|arch)\}", lambda match: names[match[1]], value)
        if isinstance(value, list):
            return [fill(item) for item in value]
        if isinstance(value, dict):
            return {key: fill(item) for key, item in value.items()}
        return value

    return [from_plain(fill(msgspec.to_builtins(value)), type(value)) for value in values]
