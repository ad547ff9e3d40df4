"""Starting over: `--fresh` removes a pipeline's checkpoint and its results, and nothing that is somebody else's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from waterclock.errors import StateMismatch, UsageError, WaterclockError
from waterclock.spark.checkpoint.folder import Checkpoint, others_in, write
from waterclock.spark.streams import stream_of
from waterclock.streaming.owner import LOCK, OWNERS, owner_of
from waterclock.streaming.places.place import names_in, remove
from waterclock.streaming.toml.config import SERVED, Config

_MARK = "waterclock.removing"
_OF_A_CHECKPOINT = {"waterclock.json", "metadata", "heartbeats", _MARK}  # one of these is in every one
_BESIDE_IT = {"spark.log", LOCK, OWNERS}


def start_over(config: Config) -> None:
    """Remove the checkpoint and the sink's tables: the next run starts from nothing. Of one behind a URI its owners stay.

    Raises UsageError, and removes nothing, if the run could not start or one of the two is something else.
    """
    checkpoint, owner = Checkpoint(config.checkpoint), owner_of(config.checkpoint)
    try:
        with closing(stream_of(config.source, config.rules, config.watermark_delay_us, checkpoint)) as stream:
            stream.check()
    except WaterclockError as error:
        raise type(error)(f"{error}, so nothing was removed") from error
    checkpoint.refuse_unusable()
    removal = Removal(checkpoint)
    removal.refuse_other_things()
    removal.refuse_anothers(" and ".join(outlet.sink.place for outlet in config.outlets))
    owner.take()
    for outlet in config.outlets:
        outlet.sink.remove()
    removal.run()
    owner.let_go()


class Removal:
    """The removal of a checkpoint. A mark in the folder goes last: what a kill in the midst leaves is no checkpoint."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint, self._path = checkpoint, checkpoint.path
        self._mark, self._sink = self._path / _MARK, self._path / SERVED

    def serves(self, sink: str) -> None:
        """Write down which sink's results go with the checkpoint; again is the same."""
        if self._served() != sink:
            write(self._sink, sink)

    def anothers(self, sink: str) -> str | None:
        """Where the results of the checkpoint are, if that is not `sink`: it is another pipeline's. Else None.

        None too if it was moved: its sink may have been moved with it.
        """
        served = self._served()
        return served if served != sink and self._checkpoint.lies_where_it_was_made() else None

    @contextmanager
    def explaining(self, sink: str) -> Iterator[None]:
        """What does not fit is another pipeline's, if the checkpoint goes with the results of another sink."""
        try:
            yield
        except StateMismatch as error:
            if (served := self.anothers(sink)) is None or {*served.split(" and ")} & {*sink.split(" and ")}:
                raise
            raise StateMismatch(
                f"the checkpoint {self._path} is that of the pipeline with {served}, and this one has {sink}. Each "
                f'pipeline needs a checkpoint of its own: write checkpoint = "{self._path.name}-2" below [pipeline] in '
                "this one's file, and run it again. Nothing was lost. If it is the same pipeline and its sink was changed: "
                "name the old sink again, or give it a new checkpoint too, and it reads everything again into the new sink"
            ) from error

    def refuse_anothers(self, sink: str) -> None:
        """Raise UsageError if the checkpoint is another pipeline's, by its sink."""
        if (served := self.anothers(sink)) is not None:
            raise UsageError(
                f"the checkpoint {self._path} is that of the pipeline with {served}, so it is not removed: write "
                f'checkpoint = "{self._path.name}-2" below [pipeline] in this one\'s file, or remove it by hand if this '
                "pipeline takes the place of that one"
            )

    def refuse_other_things(self) -> None:
        """Raise UsageError if the path is a file, or a folder that holds other things than a checkpoint's."""
        if not self._path.exists():
            return
        if not self._path.is_dir():
            raise UsageError(
                f"the checkpoint {self._path} is a file, so it is not removed: name a folder in [pipeline]"
            )
        names = set(names_in(self._path))
        if names - _BESIDE_IT and not names & _OF_A_CHECKPOINT:
            raise UsageError(
                f"the folder {self._path} holds other things ({min(names)}, ...) and no checkpoint, so it is not "
                "removed: name another folder as checkpoint in [pipeline]"
            )
        if others := others_in(self._path):
            raise UsageError(
                f"the checkpoint {self._path} has other things in its folder ({others[0]}, ...), so it is not removed: "
                "move them away, or name another folder as checkpoint in [pipeline]"
            )

    def run(self) -> None:
        """Remove the checkpoint that is in the folder, and the folder if that can be; UsageError if some of it stays.

        A link, or the place where a disk is mounted, stays, and so does what has no name of a checkpoint's.
        """
        try:
            if self._path.exists():
                write(self._mark, "")
                kept = {_MARK, OWNERS, *others_in(self._path)}
                for name in [name for name in names_in(self._path) if name not in kept]:
                    remove(self._path / name)
                remove(self._mark)
        except OSError as error:
            raise UsageError(
                f"the checkpoint {self._path} cannot be removed: {error.strerror or error}. The sink's tables are gone "
                "already, so remove it by hand"
            ) from error
        if isinstance(self._path, Path):
            with suppress(OSError):
                self._path.rmdir()

    def finish(self) -> None:
        """Remove the rest if a removal was killed: Spark would take the files named in it for read."""
        if self._mark.exists():
            self.run()

    def _served(self) -> str | None:
        return self._sink.read_text() if self._sink.exists() else None
