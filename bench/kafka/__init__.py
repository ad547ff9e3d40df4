"""Apache Kafka's own timer and purgatory, measured in the same run: Java programs of ours that drive its classes.

    harness.py    finds java, javac and mvn; compiles; runs one program and reads its JSON
    timers.py     Kafka's SystemTimer as a contender of the verbs
    heaps.py      java.util.Timer, ScheduledThreadPoolExecutor, DelayQueue and Netty's wheel likewise
    purgatory.py  Kafka's DelayedOperationPurgatory under the same loads, and its verbs
    java/         the programs; turned/SystemTime.java is the clock that they turn

Rule 1: nothing of Kafka is in waterclock. Maven brings the jars that pom.xml names.
Rule 2: what is needed and not there is said in one sentence, and the rows are left out. Figures of another run or another
        machine are never shown in their place.
Rule 3: Java counts and says; what is right is judged in Python, as for every contender.
"""
