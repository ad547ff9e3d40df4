"""Starting over: `--fresh` removes a pipeline's checkpoint and its results, and nothing that is somebody else's."""

from __future__ import annotations

from contextlib import closing

from waterclock.errors import WaterclockError
from waterclock.sinks.destination import remove_all
from waterclock.spark.checkpoint.folder import Checkpoint, is_of_a_checkpoint
from waterclock.spark.checkpoint.state_files import CARRYING
from waterclock.spark.streams import stream_of
from waterclock.streaming.checkpoint import NOTES, Names, Removal
from waterclock.streaming.owner import owner_of
from waterclock.streaming.toml.config import Config

# not Spark's own names: any query of Spark's has those
_NAMES = Names(is_of_a_checkpoint, frozenset({NOTES, CARRYING, "heartbeats", "inferred.json"}))


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
    removal = removal_of(checkpoint)
    removal.refuse_other_things()
    removal.refuse_anothers([outlet.sink.place for outlet in config.outlets])
    owner.take()
    try:
        remove_all([outlet.sink for outlet in config.outlets])
        removal.run()
    finally:
        owner.let_go()


def removal_of(checkpoint: Checkpoint) -> Removal:
    """How a checkpoint of Spark's is removed."""
    return Removal(checkpoint.path, _NAMES)
