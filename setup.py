"""The compiled part of the package, which is allowed to fail.

Without a C compiler the build says so and goes on: the wheel in plain Python takes over at run time.
Everything else about the package stands in pyproject.toml.
"""

from setuptools import Extension, setup

WHEEL = "src/waterclock/wheel"
MODULES = {
    "_objects": ("slab.h", "arena.h", "buckets.h", "turn.h", "structure.pxd", "bounds.pxd"),
    "_arrays": ("segments.h", "slots.h", "batch.h", "expire.h", "saved.h"),
}

setup(
    ext_modules=[
        Extension(
            f"waterclock.wheel.{module}",
            [f"{WHEEL}/{module}.pyx"],
            depends=[f"{WHEEL}/{header}" for header in headers],
            extra_compile_args=["-O3"],
            optional=True,
        )
        for module, headers in MODULES.items()
    ]
)
