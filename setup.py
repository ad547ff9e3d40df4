"""Which packages are built, and the compiled part, which is allowed to fail.

Rule 1: packages are found, not listed.
Rule 2: without a C compiler the build says so and goes on: the same in plain Python takes over at run time.
Rule 3: `examples` and `bench` are waterclock.examples and waterclock.bench in an editable install. No wheel has them:
        who wants a timer gets no demos. They are a distribution of their own, `demos/pyproject.toml`.
Everything else about the package stands in pyproject.toml.
"""

import os
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_py import build_py

WHEEL = "src/waterclock/wheel"
TIMER = "src/waterclock/timer"
PURGATORY = "src/waterclock/purgatory"
BUCKET = "src/waterclock/streaming/state/compiled"
# a product and a sum are two roundings, as Python has them: never one step, which some processors have
OPTIONS = ["-O3", "-ffp-contract=off"]
if "-g" not in os.environ.get("CFLAGS", "").split():
    OPTIONS.append("-g0")  # Python's flags ask for what a debugger needs: nine tenths of a file, a third of the time
BESIDE = [f"waterclock.{name}" for name in find_packages(include=["examples*", "bench*"])]


class Shipped(build_py):
    """What a wheel is made of: the packages under src, and nothing that an earlier build left in the build folder."""

    def finalize_options(self):
        super().finalize_options()
        if not self.editable_mode:
            self.packages = [name for name in self.packages if name not in BESIDE]

    def run(self):
        if not self.editable_mode:
            built = self.get_finalized_command("build_ext")
            ours = {Path(built.get_ext_fullpath(each.name)) for each in self.distribution.ext_modules}
            for left in Path(self.build_lib, "waterclock").rglob("*"):
                if left.is_file() and left not in ours:  # what is compiled is compared by its date, and costs most
                    left.unlink()
        super().run()


def compiled(module: str, source: str, *others: str, language: str = "c") -> Extension:
    """A module from `source`; it is built anew when one of `others`, which lie beside it, changes."""
    folder = source.rpartition("/")[0]
    flags = [*OPTIONS, *(["-std=c++17"] if language == "c++" else [])]
    return Extension(
        f"waterclock.{module}",
        [source],
        depends=[f"{folder}/{other}" for other in others],
        extra_compile_args=flags,
        language=language,
        optional=True,
    )


HANDLES = (
    "../clock.h",
    "occupancy.h",
    "occupancy.pxd",
    "slab.h",
    "arena.h",
    "buckets.h",
    "turn.h",
    "check.h",
    "structure.pxd",
    "bounds.pxd",
    "collected.pxi",
    "driven.pxi",
    "_objects.pxd",
)
ARRAYS = ("occupancy.h", "occupancy.pxd", "segments.h", "slots.h", "batch.h", "expire.h", "saved.h")
COLUMNS = (
    "_engine.pxd",
    "text.h",
    "rules.h",
    "msgpack.h",
    "ties.h",
    "lists.h",
    "deadlines.h",
    "core.h",
    "watching.h",
    "sequence.h",
    "seen.h",
    "engine.h",
    "chunks.h",
    "stored.h",
    "result_id.h",
    "wanted.h",
    "columns.h",
)

setup(
    packages=[*find_packages("src"), *BESIDE],
    package_dir={"": "src", "waterclock.examples": "examples", "waterclock.bench": "bench"},
    cmdclass={"build_py": Shipped},
    ext_modules=[
        compiled("wheel._objects", f"{WHEEL}/_objects.pyx", *HANDLES),
        compiled("timer._adding", f"{TIMER}/_adding.pyx", "../clock.h", "../wheel/_objects.pxd"),
        compiled("wheel._arrays", f"{WHEEL}/_arrays.pyx", *ARRAYS),
        compiled("sinks._rows", "src/waterclock/sinks/_rows.pyx"),
        compiled("purgatory._lock", f"{PURGATORY}/_lock.pyx"),
        # the files that also run uncompiled, under other names and with the types of their .pxd
        compiled("purgatory._completions", f"{PURGATORY}/completions.py", "_completions.pxd", "_lock.pxd"),
        compiled("purgatory._waiting", f"{PURGATORY}/waiting.py", "_waiting.pxd"),
        compiled("purgatory._delayed", f"{PURGATORY}/delayed.py", "_delayed.pxd", "_completions.pxd", "_lock.pxd"),
        compiled("streaming.state.compiled._engine", f"{BUCKET}/_engine.pyx", *COLUMNS, language="c++"),
    ],
)
