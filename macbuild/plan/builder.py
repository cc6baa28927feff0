"""Collect the steps of a plan, each with its key and the reason why it would run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from macbuild.plan.keys import step_key
from macbuild.plan.model import Kind, Spec, Step
from macbuild.store import Store

__all__ = ["PlanBuilder"]


class PlanBuilder:
    """Collects steps; a step that is added twice is kept once. `remarks` says what a person may not expect of them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.steps: dict[str, Step] = {}
        self.remarks: list[str] = []

    def add(self, identity: str, kind: Kind, spec: Spec, facts: dict[str, str], needs: Sequence[Step]) -> Step:
        """Add a step and return it; its key is made of the facts and of the keys of the steps it needs."""
        key, ingredients = step_key(kind, facts, needs)
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
