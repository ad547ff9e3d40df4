"""Where a pipeline's checkpoint and files lie: a path of this machine, or a URI that Spark's file systems know.

place.py    `Place`: the seam, and what is done to one: written whole, made if it is new, removed
hadoop.py   `HadoopPath`: a place by its URI (hdfs://, s3a://, ...), reached through the Java that Spark runs on
"""
