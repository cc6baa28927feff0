"""Choose the licences that a package carries for what is linked statically into it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from macbuild.plan.components import ComponentPlan
from macbuild.recipe.model import Include, Package

__all__ = ["with_licenses"]

_LICENSES = "share/licenses/**/*"  # where the libraries install theirs


def with_licenses(package: Package, plan: ComponentPlan, carried: Mapping[str, ComponentPlan]) -> Package:
    """Return a package with the licences of all that is linked statically into it, but for what it takes packed."""
    packed = {include.component for include in package.include if include.packed}
    holders = [plan, *(other for name, other in carried.items() if name not in packed)]
    names = dict.fromkeys(other.recipe.name for holder in holders for other in holder.static())
    rules = [Include(component=name, source=_LICENSES, to=package.licenses) for name in names]
    return msgspec.structs.replace(package, include=[*package.include, *rules])
