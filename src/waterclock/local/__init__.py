"""Pipelines on one machine, without Spark: `engine = "local"`.

    pipeline.py   a start, the batches, the end: what is exactly once, in numbered steps
    outlets.py    the sinks: what each is given, and who lacks a batch
    record.py     what each batch read, beside its results: the log that state is made from again
    csv.py        format = "csv": which of its settings are known here
    sources.py    files: a batch of what is there, and the same batch once more
    topics.py     the same of topics
    records.py    records as a batch, and a list of events as records
    state.py      the rules over all buckets in memory
    snapshots.py  the file in which buckets are kept from run to run
    command.py    `waterclock run` with it
    trial.py      the same pipeline on a list of events, in memory: `waterclock.testing.run_pipeline`

Rule 1: importing this imports nothing from outside the standard library.
"""

from typing import TYPE_CHECKING, Any

from waterclock.lazily import first_use

if TYPE_CHECKING:
    from waterclock.local.pipeline import LocalPipeline
    from waterclock.local.trial import PipelineRun

__all__ = ["LocalPipeline", "PipelineRun"]

__getattr__: Any = first_use(
    __name__, {"LocalPipeline": "waterclock.local.pipeline", "PipelineRun": "waterclock.local.trial"}
)
