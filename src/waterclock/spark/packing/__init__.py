"""From rows to the operator and back: rows are packed by buckets of keys, go through the rules, and are unpacked.

packs.py      columns by their place, and packed rows with the times that move Spark's watermark
operator.py   the rules as one `transformWithState`
closing.py    what closes a stream that went through `rules.on_spark()`
transform.py  `rules.on_spark()`
"""
