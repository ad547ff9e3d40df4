"""A page's samples are run from top to bottom, as a reader would type them in an empty folder: what is shown must come out.

Rule 1: A block whose title is a file's name (```toml title="pipeline.toml") is written to that file, and not run.
Rule 2: ```python runs as it stands, in one namespace for the whole page; where it has prompts, its answers are compared.
Rule 3: ```console has lines `$ command`, which bash runs with these tests' environment first on PATH, and below each all
        that it prints, `...` for what differs from run to run. A command ends with 0, or `$ echo $?` below shows what
        it ends with, or the title ends with "it fails": the last one does. ```bash has commands alone.
Rule 4: Blocks of one title are typed into one terminal, those without a title into another. `$ command &` goes on while
        what follows runs; so does the last command of a block with the title "Terminal 1, leave it running". What stands
        below it is waited for. A line `^C` interrupts the command above it; at the beginning of a block (the title is
        "Terminal 1") the latest that goes on in that terminal, or in any. The end of the page ends all that goes on.
Rule 5: A block whose title begins with "needs " runs only in a test that has what it needs.
"""

from __future__ import annotations

import doctest
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, chdir, suppress
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE_S = 300  # a command that prints nothing for so long hangs; a start of Spark on a busy machine takes a minute
HAND_S = 0.5  # nobody's hand is at Ctrl-C sooner; what a line above began, as a message sent, has gone on meanwhile
TIDY_S = 20  # and what has not ended by itself so long after an interrupt is killed
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?P<words>[^\n`]*)\n(?P<content>.*?)^(?P=indent)```$", re.M | re.S
)
# what the next command finds as the last one left it: the folder and the environment, as in one terminal
KEEP = """trap '{ declare -px; printf "cd %q\\n" "$PWD"; } >"$SAMPLE_STATE"' EXIT\n"""
BEGIN = '[ -e "$SAMPLE_STATE" ] && . "$SAMPLE_STATE"\n'
STAYS = ", leave it running"
FILE = re.compile(r"[\w./-]+\.\w+|(?:[\w.-]+/)*(?:Dockerfile|Makefile|Containerfile)")
COMMAND = re.compile(r"((?:[^\n]*\\\n)*[^\n]*)\n?(.*)", re.S)


class Block(NamedTuple):
    language: str
    title: str
    content: str
    line: int  # of the page


def all_blocks(text: str) -> Iterator[Block]:
    for found in BLOCK.finditer(text):
        title = re.search(r'title="([^"]*)"', found["words"])
        content = textwrap.dedent(found["content"])
        yield Block(found["language"], title[1] if title else "", content, text.count("\n", 0, found.start()) + 1)


def blocks(file: Path, language: str) -> Iterator[tuple[str, str]]:
    """(name, content) of each fenced block of that language."""
    found = [block for block in all_blocks(file.read_text(encoding="utf-8")) if block.language == language]
    yield from ((f"{file.name}-{place}", block.content) for place, block in enumerate(found, 1))


def run_block(content: str, names: dict[str, Any]) -> None:
    """Run a block as it stands; one with prompts is held to the answers that stand in it."""
    if ">>> " not in content:
        exec(compile(content, "block", "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(content, names, "block", None, None)
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert not runner.run(test, out=told.append, clear_globs=False).failed, "".join(told)


def is_like(shown: str, printed: str) -> bool:
    want, got = (re.sub(r"[ \t]+$", "", text, flags=re.M).rstrip("\n") + "\n" for text in (shown, printed))
    return doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS)


class Command:
    """A command of a console, in a group of processes of its own."""

    def __init__(self, script: str, folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "-c", script], cwd=folder, env=environment, text=True, encoding="utf-8", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._lines: queue.Queue[str] = queue.Queue()  # the empty one is the end
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in iter(lines.readline, ""):
                self._lines.put(line)
        self._lines.put("")

    def prints(self, shown: str, *, to_the_end: bool) -> str | None:
        """What was printed where that is not what is shown."""
        printed, line = "", "\n"
        while to_the_end or not is_like(shown, printed):
            try:
                line = self._lines.get(timeout=PATIENCE_S)
            except queue.Empty:
                return f"{printed}(and then nothing for {PATIENCE_S} seconds)"
            printed += line
            if not line:
                return None if is_like(shown, printed) else printed
        return None

    def interrupt(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)

    def code(self) -> int:
        return self._process.wait(PATIENCE_S)

    def end(self) -> None:
        """Nothing of it stays, whatever its own end leaves behind."""
        self.interrupt()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(TIDY_S)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Terminals:
    """What the consoles of one page run; `stack` ends all that goes on."""

    def __init__(self, page: str, folder: Path, stack: ExitStack) -> None:
        self._page, self._folder, self._stack = page, folder, stack
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        # into a pipe Python would print late, and what asks for the width of the terminal would find none; a plugin that
        # stands beside these tests warns where its option is not set
        own = {"PATH": path, "PYTHONUNBUFFERED": "1", "COLUMNS": "80"}
        own["PYTEST_ADDOPTS"] = "-o asyncio_default_fixture_loop_scope=function"
        self._environment = {**kept, **own}
        self._going_on: list[tuple[str, Command]] = []
        self._code = 0

    def run(self, block: Block) -> None:
        """A block of commands, or of commands and what they print."""
        place = f"{self._page}, line {block.line}"
        terminal = block.title.removesuffix(STAYS)
        if block.language == "bash":
            code = self._one(place, f"set -e\n{block.content}", "...", terminal)
            assert code == 0, f"{place}: it ended with {code}"
            return
        before, *found = re.split(r"^\$ ", block.content, flags=re.M)
        if before.startswith("^C\n"):
            self._interrupt(place, self._latest(terminal), before.removeprefix("^C\n"))
        elif before or not found:
            raise AssertionError(f"{place}: a console begins with `$ command` or with ^C")
        for text, next_one in zip(found, [*found[1:], ""], strict=False):
            command, shown = COMMAND.fullmatch(text).groups()  # type: ignore[union-attr]
            goes_on = command.endswith(" &") or (not next_one and block.title.endswith(STAYS))
            where = f"{place}: `{command}`"
            code = self._one(where, command.removesuffix(" &"), shown, terminal, goes_on=goes_on)
            if not next_one and block.title.endswith("it fails"):
                assert code, f"{where} did not fail"
            else:
                assert not code or next_one.startswith("echo $?\n"), f"{where} ended with {code}"

    def _one(self, place: str, text: str, shown: str, terminal: str, *, goes_on: bool = False) -> int:
        before, ctrl_c, after = f"\n{shown}".partition("\n^C\n")
        state = self._folder.with_name(f"{self._folder.name}.{re.sub('[^0-9A-Za-z]', '-', terminal)}")
        script = f"{BEGIN}{'' if goes_on else KEEP}(exit {self._code})\n{text}"
        command = Command(script, self._folder, {**self._environment, "SAMPLE_STATE": str(state)})
        self._stack.callback(command.end)
        compare(place, before[1:], command.prints(before[1:], to_the_end=not (goes_on or ctrl_c)))
        if ctrl_c:
            self._interrupt(place, command, after)
        elif goes_on:
            self._going_on.append((terminal, command))
        else:
            self._code = command.code()
            return self._code
        return 0

    def _latest(self, terminal: str) -> Command:
        names = [name for name, _ in self._going_on]
        at = len(names) - 1 - names[::-1].index(terminal) if terminal in names else -1
        return self._going_on.pop(at)[1]

    def _interrupt(self, place: str, command: Command, shown: str) -> None:
        time.sleep(HAND_S)
        command.interrupt()
        compare(f"{place}: ^C", shown, command.prints(shown, to_the_end=True))
        assert command.code() in (0, 130, -signal.SIGINT), f"{place}: ^C ended with {command.code()}"


def compare(place: str, shown: str, printed: str | None) -> None:
    assert printed is None, f"{place} is shown to print\n{shown}\nbut printed\n{printed}"


def run_page(page: Path, folder: Path, *, put: Mapping[str, str] | None = None, has: Collection[str] = ()) -> int:
    """How many blocks of the page ran; `put` replaces in its text what is another machine's, such as an address."""
    text, ran = page.read_text(encoding="utf-8"), 0
    for shown, here in (put or {}).items():
        assert shown in text, f"{page.name} does not have {shown!r}"
        text = text.replace(shown, here)
    names: dict[str, Any] = {"__name__": "__main__"}
    with ExitStack() as stack, chdir(folder):
        terminals = Terminals(page.name, folder, stack)
        for block in all_blocks(text):
            needs = block.title.removeprefix("needs ") if block.title.startswith("needs ") else ""
            if needs and needs not in has:
                continue
            if FILE.fullmatch(block.title):
                Path(block.title).parent.mkdir(parents=True, exist_ok=True)
                Path(block.title).write_text(block.content, encoding="utf-8")
            elif block.language in ("console", "bash"):
                terminals.run(block)
            elif block.language == "python":
                run_block(block.content, names)
            else:
                continue
            ran += 1
    return ran


def free_port() -> int:
    """A port for a test: the pages have Kafka's usual one, which somebody may have."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
