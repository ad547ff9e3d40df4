"""Rules from TOML: the same rules as the builders make, and a sentence that says what is wrong and where."""

import tomllib

import pytest

from waterclock import Rules
from waterclock.errors import UsageError
from waterclock.rules.toml import check_names, rules_from

COLUMNS = 'key = "case"\ntime = "ts"\ntype = "what"\n'


def read(text: str) -> Rules:
    return rules_from(tomllib.loads(text))


def test_tables_make_the_same_rules_as_the_builders() -> None:
    text = """
        key = "case"
        time = "ts"
        type = "what"
        id = "event"
        sequence = "seq"
        deduplicate.within = "30 days"
        order = { wait = "14 days", on_gap = "dead_letter" }
        deliver_at.column = "at"
        delay = [{ after = "a", by = "1 hour", emit = "soon" }, { after = "b", by = 7, emit = "at once", where = "n > 1" }]
        expect = [{ type = "b", after = "a", within = "2 d", otherwise = "no b", cancel_by = ["c", "d"] }]
        quiet = [{ after = "1 week", emit = "silent", where = "not n" }]
        session = [{ gap = "1 min", emit = "over" }]
    """
    assert read(text) == (
        Rules(key="case", time="ts", type="what", id="event", sequence="seq")
        .deduplicate(within="30 days")
        .order(wait="14 days", on_gap="dead_letter")
        .deliver_at("at")
        .delay(after="a", by="1 hour", emit="soon")
        .delay(after="b", by=7, emit="at once", where="n > 1")
        .expect("b", after="a", within="2 d", otherwise="no b", cancel_by=("c", "d"))
        .quiet(after="1 week", emit="silent", where="not n")
        .session(gap="1 min", emit="over")
    )


def test_every_duration_takes_a_text_of_zero_as_the_number() -> None:
    text = """
        deduplicate.within = 0
        order.wait = 0
        delay = [{ after = "a", by = 0, emit = "soon" }]
        expect = [{ type = "b", after = "a", within = 0, otherwise = "no b" }]
        quiet = [{ after = 0, emit = "silent" }]
        session = [{ gap = 0, emit = "over" }]
    """
    assert read(COLUMNS + text.replace("= 0", '= "0"')) == read(COLUMNS + text)


def test_events_are_switched_off_by_a_word() -> None:
    assert read(COLUMNS + "events = false") == Rules(key="case", time="ts", type="what", events=False)


def test_an_expectation_may_have_a_deadline_from_a_column_and_conditions() -> None:
    text = """
        [[expect]]
        type = ["b", "d"]
        after = "a"
        by = "due"
        otherwise = "no"
        cancel_by = ["c"]
        where = "n > 1"
        met_where = "m"
        cancel_where = 'o == "p"'
    """
    words = {"where": "n > 1", "met_where": "m", "cancel_where": 'o == "p"'}
    expected = Rules(key="case", time="ts", type="what").expect(
        ("b", "d"), after="a", by="due", otherwise="no", cancel_by=["c"], **words
    )
    assert read(COLUMNS + text) == expected


def test_an_order_table_without_a_word_in_it_is_the_plain_order() -> None:
    assert read(COLUMNS + "[order]\n") == Rules(key="case", time="ts", type="what").order()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('time = "ts"', "[rules]: 'key' is missing"),
        ('key = "case"', "[rules]: 'time' is missing"),
        ('kee = "case"\ntime = "ts"', "[rules]: 'kee' is not known here; did you mean 'key'?"),
        (COLUMNS + "within_us = 5", "[rules]: 'within_us' is not known here"),
        (COLUMNS + 'deliver_column = "x"', "[rules]: 'deliver_column' is not known here"),
        ('key = 5\ntime = "ts"', "[rules]: Rules(key=) must be a name, got 5"),
        ('key = ""\ntime = "ts"', "[rules]: Rules(key=) must be a name, got ''"),
        (COLUMNS + 'events = "no"', "[rules]: Rules(events=) must be True or False, got 'no'"),
        (COLUMNS + "id = false", "[rules]: Rules(id=) must be a name, got False"),
        (COLUMNS + "deduplicate = 5", "[rules.deduplicate] must be a table, got 5"),
        (COLUMNS + "[[deduplicate]]\nwithin = 5", "[rules.deduplicate] must be a table, got [{'within': 5}]"),
        (COLUMNS + "deduplicate.within = true", "[rules.deduplicate]: deduplicate(within=) must be a"),
        (COLUMNS + "deduplicate.within = 07:32:00", "[rules.deduplicate]: deduplicate(within=) must be a"),
        (COLUMNS + "deduplicate.within = nan", "[rules.deduplicate]: deduplicate(within=) must be a"),
        (COLUMNS + 'order.on_gap = "wait"', "[rules.order]: order(on_gap=) must be one of skip, hold, "),
        (COLUMNS + 'order.on_gap = ["skip"]', "[rules.order]: order(on_gap=) must be one of"),
        (
            COLUMNS + 'quiet = [{ after = 1, emit = "q", where = "n = 1" }]',
            "[[rules.quiet]] number 1: quiet(where=): 'n = 1' is no condition (invalid syntax",
        ),
        (
            COLUMNS + 'quiet = [{ after = 1, emit = "q", where = "" }]',
            "[[rules.quiet]] number 1: quiet(where=) must be a condition such as amount > 100, got ''",
        ),
        (
            COLUMNS + 'expect = [{ type = "b", after = "a", otherwise = "x" }]',
            "[[rules.expect]] number 1: expect() needs a deadline: either within=, a duration, or by=",
        ),
        (COLUMNS + "deliver_at.column = 1", "[rules.deliver_at]: "),
        (COLUMNS + "delay = { by = 1 }", "[[rules.delay]] must be written with double brackets"),
        (COLUMNS + 'quiet = ["1 day"]', "[[rules.quiet]] number 1 must be a table, got '1 day'"),
        (
            COLUMNS + 'quiet = [{ after = 1, emit = "q" }, { after = "x", emit = "p" }]',
            "[[rules.quiet]] number 2: quiet(after=) must read like",
        ),
        (
            COLUMNS + 'quiet = [{ after = 1, emit = "same" }]\nsession = [{ gap = 1, emit = "same" }]',
            "[[rules.session]] number 1: session(emit=) 'same' names another rule already",
        ),
        (
            COLUMNS + 'expect = [{ type = "b", after = "a", within = 1, otherwise = "x", cancel_by = "c" }]',
            "[[rules.expect]] number 1: expect(cancel_by=) must be a list of types, got the text 'c'",
        ),
        (
            'key = "k"\ntime = "t"\ndelay = [{ after = "a", by = 1, emit = "x" }]',
            "[[rules.delay]] number 1: delay() looks at the type of an event",
        ),
    ],
)
def test_a_wrong_table_gets_a_sentence_that_says_what_and_where(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("text", "where", "word"),
    [
        ('deduplicate.witin = "1 day"', "[rules.deduplicate]", "'witin'"),
        ("[deduplicate]", "[rules.deduplicate]", "'within' is missing"),
        ('order.weit = "1 d"', "[rules.order]", "'weit' is not known here; did you mean 'wait'?"),
        ('delay = [{ after = "a", by = 1 }]', "[[rules.delay]] number 1", "'emit'"),
        ('order = { self = 1, wait = "1 d" }', "[rules.order]", "'self'"),
    ],
)
def test_a_wrong_name_inside_a_rule_is_told_as_one_outside_of_it_not_in_the_words_of_python(
    text: str, where: str, word: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read(COLUMNS + text)
    told = str(caught.value)
    assert told.startswith(where)
    assert word in told
    assert "argument" not in told


@pytest.mark.parametrize("rule", ["deduplicate.within", "order.wait"])
def test_a_duration_beyond_all_numbers_is_a_usage_error(rule: str) -> None:
    with pytest.raises(UsageError, match=r"^\[rules\."):
        read(COLUMNS + f'{rule} = "{"9" * 400} days"')


def test_check_names_takes_known_names_and_no_others() -> None:
    check_names("here", {"a": 1}, ("a", "b"), ("a",))
    with pytest.raises(UsageError, match=r"^here: 'zzz' is not known here; known are a, b$"):
        check_names("here", {"a": 1, "zzz": 2}, ("b", "a"), ())
    with pytest.raises(UsageError, match=r"^here: 'a' is missing$"):
        check_names("here", {}, ("a", "b"), ("b", "a"))
