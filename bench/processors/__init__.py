"""What somebody would take instead: Apache Flink and Kafka Streams with the same orders and rules, beside the pipeline.

    campaign.py   who takes part, turns, medians
    course.py     the orders as files of JSON lines and in a topic; what the answer must be
    contender.py  a process that is asked for run after run; CPU of all its processes
    building.py   the Java programs, compiled once; Maven brings the jars
    runs.py       what the processes of waterclock share
    ours.py       the pipeline on Spark, and reading and writing without rules
    local.py      the pipeline without Spark, and the same
    answers.py    what stands in a table or a topic, against what must
    table.py      the figures for people, and where waterclock loses
    orders/       the rules in Java, once; flink/ and streams/ keep the orders, each in its own way

Rule 1: everybody is a process of his own that stays and is warm: he has done an eighth of the orders before.
Rule 2: nothing of Flink and of Kafka is in waterclock. Maven brings the jars that the poms name.
Rule 3: who cannot be measured is left out, and a sentence says why.
"""
