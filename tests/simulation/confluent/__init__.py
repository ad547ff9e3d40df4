"""confluent-kafka as the relay and the capture see it, in a simulated process: `Consumer`, `Producer`, `AdminClient`.

Rule 1: librdkafka's threads are the process's asyncio loop. Who calls waits as a thread of the simulation does.
Rule 2: values are confluent-kafka's own: messages, errors, places.
Rule 3: what is done is what librdkafka 2.16 does, where the product can see it: which errors are fatal, retriable or end a
    transaction; what is sent again, and for how long; when callbacks come; what a group does with a member.
Rule 4: there is one leader, which the universe knows.
"""
