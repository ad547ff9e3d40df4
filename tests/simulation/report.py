from __future__ import annotations


def short(one):
    return f"seed {one.plan.seed}: {one.world.problems[:4]}; hash {one.world.digest.hexdigest()}"
