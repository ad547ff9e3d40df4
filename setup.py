"""The compiled part of the package, which is allowed to fail.

Without a C compiler the build says so and goes on: the wheel in plain Python takes over at run time.
Everything else about the package stands in pyproject.toml.
"""

from setuptools import Extension, setup

WHEEL = "src/waterclock/wheel"
HEADERS = ("slab.h", "arena.h", "buckets.h", "turn.h", "structure.pxd", "bounds.pxd")
PURGATORY = "src/waterclock/purgatory"

setup(
    ext_modules=[
        Extension(
            "waterclock.wheel._objects",
            [f"{WHEEL}/_objects.pyx"],
            depends=[f"{WHEEL}/{header}" for header in HEADERS],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "waterclock.purgatory._lock", [f"{PURGATORY}/_lock.pyx"], extra_compile_args=["-O3"], optional=True
        ),
        # the file that also runs uncompiled, under another name and with the types of _delayed.pxd
        Extension(
            "waterclock.purgatory._delayed",
            [f"{PURGATORY}/delayed.py"],
            depends=[f"{PURGATORY}/_delayed.pxd", f"{PURGATORY}/_lock.pxd"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
    ]
)
