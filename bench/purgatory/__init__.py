"""The purgatory: what an operation costs at rising rates, which rate is held, what the verbs cost for themselves."""
