"""Every API at every version: a good request, built from its schema, and each field gone wrong.

Rule: what is asked comes from the schema and a recipe; nothing of it is said here.
"""

from __future__ import annotations

from functools import partial

from compat_tests.differential import words
from compat_tests.differential.connection import message_modules
from compat_tests.differential.recipes import RECIPES, SHARED, Recipe
from compat_tests.differential.scripts import add_script
from compat_tests.differential.side import Side
from compat_tests.differential.variants import filled, variants
from kledger.gateway.wire.messages.k10_find_coordinator import FindCoordinatorRequest


def play(recipe: Recipe, side: Side) -> None:
    """Ask everything that comes of a recipe."""
    side = side.another()
    kind = message_modules()[recipe.key].REQUEST
    api = kind.__api__.name
    for coordinator in (0, 1):
        finding = FindCoordinatorRequest(key_type=coordinator, coordinator_keys=["g"])
        side.settle("coordinator", finding, 6)
    side.quietly(words.create_topic(SHARED), 7)
    side.wait_served(SHARED, 1)
    for version in side.versions(recipe.key, since=recipe.since):
        tag = f"{api}-{version}"
        ready = recipe.prepare(side, tag)
        good = filled(kind, version, {**ready, **recipe.known})
        side.settle("good", good, version)
        for number, variant in enumerate(variants(good, version, (f"no-{api}", f"no {api}"))):
            if variant.label in recipe.without:
                continue
            if recipe.is_spent:
                ready = recipe.prepare(side, f"{tag}-{number}")
            request = filled(kind, version, {**ready, **recipe.known})
            variant.change(request)
            side.settle(variant.label, request, version)


for each in RECIPES:
    name = message_modules()[each.key].REQUEST.__api__.name.removesuffix("Request")
    add_script(f"variants of {name}", partial(play, each))
