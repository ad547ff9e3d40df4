"""What an import costs, and what works where nothing but the bare package is installed."""

import ast
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from tests.spark.pipelines import make_pipeline, orders
from waterclock import __version__, wheel
from waterclock.errors import pip_install

HERE = Path(wheel.__file__).parent

BLOCK = """
import importlib.abc, sys

class Nothing(importlib.abc.MetaPathFinder):
    "Only waterclock and the standard library are installed."

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "waterclock"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nothing())
"""


def python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    no_compiler = "ignore:the compiled timing wheel is missing:RuntimeWarning"
    command = [sys.executable, "-W", "error", "-W", no_compiler, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def bare(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `script` where no third-party package can be imported."""
    return python(BLOCK + script, *arguments)


@pytest.mark.parametrize("module", ["waterclock", "waterclock.rules", "waterclock.wheel", "waterclock.cli"])
def test_an_import_takes_nothing_from_outside_of_the_standard_library(module: str) -> None:
    script = (
        f"import sys; before = set(sys.modules); import {module}; "
        "new = [name for name in set(sys.modules) - before if getattr(sys.modules[name], '__spec__', None)]; "
        "new = {name.partition('.')[0] for name in new}; "
        "print(sorted(new - set(sys.stdlib_module_names) - {'waterclock'}))"
    )
    done = python(script)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_importing_the_package_imports_none_of_its_parts() -> None:
    script = "import sys, waterclock; print(sorted(name for name in sys.modules if name.startswith('waterclock')))"
    assert python(script).stdout == "['waterclock', 'waterclock.lazily']\n"


def test_every_public_name_is_there_and_another_one_is_an_attribute_error() -> None:
    script = (
        "import waterclock\n"
        "print([name for name in waterclock.__all__ if getattr(waterclock, name) is None])\n"
        "try: waterclock.Ruels\n"
        "except AttributeError as error: print(error)"
    )
    assert bare(script).stdout == "[]\nmodule 'waterclock' has no attribute 'Ruels'\n"


def test_the_version_is_told_by_the_module_too() -> None:
    command = [sys.executable, "-W", "error", "-m", "waterclock.cli", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"waterclock {__version__}\n", "")


# The bare package


def test_rules_run_in_process_in_the_bare_package() -> None:
    script = (
        "from waterclock import Rules\n"
        "rules = Rules(key='k', time='t', type='y', sequence='n').deduplicate('1 day').order('1 h')"
        ".delay('a', '1 s', 'e').expect('b', after='a', within='1 s', otherwise='no b').quiet('1 d', 'q')\n"
        "rows = [{'k': 1, 't': 5, 'y': 'a', 'n': 2}, {'k': 1, 't': 0, 'y': 'a', 'n': 1}]\n"
        "print([result.kind for result in rules.run(rows, '1 h')])"
    )
    done = bare(script)
    kinds = ["event", "event", "emit", "expired", "emit", "expired", "quiet"]
    assert (done.stderr, sorted(ast.literal_eval(done.stdout))) == ("", sorted(kinds))


def test_the_timing_wheel_turns_in_the_bare_package() -> None:
    script = (
        "from waterclock import TimingWheel\n"
        "wheel, ran = TimingWheel(1, 0), []\n"
        "wheel.add_at(5, lambda: ran.append('five'))\n"
        "wheel.advance(4); print(ran); wheel.advance(5); print(ran)"
    )
    done = bare(script)
    assert (done.stdout, done.stderr) == ("[]\n['five']\n", "")


def test_the_trace_command_works_in_the_bare_package() -> None:
    done = bare("from waterclock.cli import main; sys.exit(main(['trace', 'seven-tasks']))")
    assert (done.returncode, done.stderr) == (0, "")


COMMANDS = [
    ["run"],
    ["state"],
    ["state", "rescale"],
    ["state", "move"],
    ["broker"],
    ["broker", "promote"],
    ["cdc"],
    ["relay"],
    ["relay", "send"],
    ["demo"],
    ["trace"],
    ["doctor"],
    ["bench"],
    ["bench", "timers"],
]


@pytest.mark.parametrize("command", [[], *COMMANDS], ids=" ".join)
def test_the_help_of_every_command_works_in_the_bare_package(command: list[str]) -> None:
    done = bare("from waterclock.cli import main; sys.exit(main(sys.argv[1:]))", *command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(" ".join(["usage: waterclock", *command]))


def test_the_options_of_all_commands_import_no_part_that_works() -> None:
    """Each start makes all of them, so what is imported for one is waited for by the others."""
    script = (
        "import sys\nfrom waterclock import cli\ntry: cli.main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'asyncio', 'http.server', 'sqlite3', 'waterclock.wheel', 'waterclock.timer', 'waterclock.rules', "
        "'waterclock.sinks', 'waterclock.broker.core', 'waterclock.cdc.capture', 'waterclock.relay.relay', "
        "'waterclock.spark.pipeline'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    assert python(script).stderr == "[]\n"


@pytest.mark.parametrize("package", ["bench", "examples"])
def test_without_a_package_that_lies_beside_src_the_other_commands_work(package: str) -> None:
    block = BLOCK.replace(
        'name.partition(".")[0] not in {*sys.stdlib_module_names, "waterclock"}', f"name == 'waterclock.{package}'"
    )
    script = block + "from waterclock.cli import main; sys.exit(main(sys.argv[1:]))"
    assert python(script, "trace", "seven-tasks").returncode == 0
    assert all(word in python(script, "--help").stdout for word in ("demo", "bench", "trace"))
    done = python(script, *{"bench": ["bench", "wheel"], "examples": ["demo", "fines"]}[package], "--seed", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr == f"waterclock: waterclock.{package} is missing, as it is a package of its own: "
        "pip install ./demos in a clone of waterclock\n"
    )


@pytest.mark.parametrize(
    "arguments", [("run", "pipeline.toml"), ("demo", "fines", "--folder", "/dev/null/out")], ids=["run", "demo"]
)
def test_a_command_that_needs_spark_says_how_to_get_it_and_names_the_doctor(arguments: tuple[str, ...]) -> None:
    done = bare("from waterclock.cli import main; sys.exit(main(sys.argv[1:]))", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert pip_install("spark") in done.stderr
    assert done.stderr.splitlines()[1:] == ["waterclock: to see what else is missing here: waterclock doctor spark"]


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow", "msgpack", "numpy"])
def test_one_missing_package_is_named_with_the_way_to_get_it(missing: str, tmp_path: Path) -> None:
    block = BLOCK.replace('not in {*sys.stdlib_module_names, "waterclock"}', f"== {missing!r}")
    file = make_pipeline(tmp_path, orders(1))
    done = python(block + f"from waterclock.cli import main; sys.exit(main(['run', {str(file)!r}]))")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert missing in done.stderr.lower()
    assert "pip install" in done.stderr


def test_on_spark_without_spark_is_an_environment_error_of_the_same_words() -> None:
    script = (
        "from waterclock import Rules\nfrom waterclock.errors import EnvironmentMissing\n"
        "try: Rules(key='k', time='t').on_spark()\nexcept EnvironmentMissing as error: print(error)"
    )
    assert bare(script).stdout == f"pyarrow is missing: {pip_install('spark')}\n"


def test_a_compiled_wheel_that_was_built_is_used() -> None:
    built = [suffix for suffix in EXTENSION_SUFFIXES if (HERE / f"_objects{suffix}").exists()]
    assert bool(built) == wheel.COMPILED


# Where the compiled wheel is there and cannot be loaded

INSIDE = """
import sys, warnings
sys.path[:] = {path!r}
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as told:
    from waterclock import TimingWheel
    wheel = TimingWheel()
    wheel.add(5, print, "ran")
    wheel.advance(5)
print(TimingWheel.__module__, flush=True)
print(*(warning.message for warning in told), flush=True)
"""
SUBINTERPRETER = f"""
import sys
from waterclock import TimingWheel
print(TimingWheel.__module__, flush=True)
inside = {INSIDE!r}.format(path=sys.path)
try:
    import _interpreters as interpreters  # Python 3.13
    made = interpreters.create("isolated")
except ImportError:
    import _xxsubinterpreters as interpreters
    made = interpreters.create()
failed = interpreters.run_string(made, inside)
sys.exit(failed and str(failed))
"""


@pytest.mark.skipif(not wheel.COMPILED, reason="nothing is compiled")
def test_in_an_interpreter_of_its_own_the_plain_wheel_is_used_and_the_reason_is_told() -> None:
    done = python(SUBINTERPRETER)
    lines = done.stdout.splitlines()
    assert (lines[:3], done.stderr) == (["waterclock.wheel._objects", "ran", "waterclock.wheel.reference"], ""), done
    assert "cannot be loaded here" in lines[3]
    assert "nterpreter" in lines[3]
    assert "C compiler" not in lines[3]


def test_a_wheel_that_was_never_built_is_told_with_the_way_to_get_it() -> None:
    script = (
        "import sys, warnings, importlib.abc\n"
        "class Nothing(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'waterclock.wheel._objects': raise ModuleNotFoundError(name=name)\n"
        "sys.meta_path.insert(0, Nothing())\n"
        "warnings.simplefilter('always')\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    from waterclock import TimingWheel\n"
        "print(TimingWheel.__module__, *(warning.message for warning in told))"
    )
    done = python(script)
    assert done.stdout.startswith("waterclock.wheel.reference the compiled timing wheel is missing")
    assert "C compiler" in done.stdout


# The package as an object


def test_what_the_package_lists_is_its_api() -> None:
    script = "import waterclock; print(dir(waterclock) == sorted(waterclock.__all__))"
    assert python(script).stdout == "True\n"


def test_a_name_is_looked_up_once() -> None:
    script = (
        "import waterclock, waterclock.timer\n"
        "for module in (waterclock, waterclock.timer):\n"
        "    first = [getattr(module, name) for name in module.__all__]\n"
        "    del module.__getattr__\n"
        "    assert [getattr(module, name) for name in module.__all__] == first\n"
        "print('all')"
    )
    done = python(script)
    assert (done.stdout, done.stderr) == ("all\n", "")


def test_a_compiled_module_that_is_older_than_its_source_is_named_with_the_remedy() -> None:
    script = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "waterclock.timer.loop": raise AttributeError("type object 'Adder' has no attribute 'touch'")
sys.meta_path.insert(0, Finder())
from waterclock import AsyncTimer
"""
    done = python(script)
    assert (
        "'Adder' has no attribute 'touch'): its compiled modules are older than the source beside them: run `make`"
        in (done.stderr)
    )
    assert "cannot import name" not in done.stderr


@pytest.mark.parametrize(
    ("statement", "extras"),
    [("from waterclock.relay import Delays", ("relay", "broker")), ("import waterclock.testing", ("broker",)),
     ("from waterclock.broker import Broker", ("broker",))],
)  # fmt: skip
def test_what_an_import_misses_is_named_once_with_all_that_brings_it(statement: str, extras: tuple[str, ...]) -> None:
    done = bare(statement)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith("ModuleNotFoundError: ")
    assert said.endswith(f" is missing: {pip_install(*extras)}")
    assert done.stderr.count("Traceback") == 1


@pytest.mark.parametrize(("option", "extras"), [((), ("relay",)), (("--embedded", "out"), ("relay", "broker"))])
def test_a_relay_that_misses_packages_names_all_of_them_at_once(
    option: tuple[str, ...], extras: tuple[str, ...]
) -> None:
    script = "from waterclock.cli import main; sys.exit(main(sys.argv[1:]))"
    done = bare(script, "relay", *(option or ("--bootstrap", "127.0.0.1:1")))
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].endswith(f" is missing: {pip_install(*extras)}")
