"""`waterclock relay`: delayed messages, and beside it what sends, cancels and reads them."""

from __future__ import annotations

import json
import re
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from typing import Any, Final

from waterclock.arguments import count, describe, port
from waterclock.errors import UsageError
from waterclock.web import option

SERVERS: Final = "127.0.0.1:9092"
DOOR: Final = "127.0.0.1:9400"  # as an example
_EXAMPLES: Final = """waterclock relay --embedded out/relay
example: waterclock relay send reminders hello --delay 3s
example: waterclock relay read reminders"""

StartBroker = Callable[[Any, int], Any]  # folder, port -> a context manager of what has a `bootstrap`
TakeOutbox = Callable[..., Any]  # as OutboxTaker (outbox/taker.py) is made


def add_to(parser: ArgumentParser, start_broker: StartBroker, take_outbox: TakeOutbox) -> None:
    """The options, and the commands beside it; `start_broker` is for --embedded, `take_outbox` for --outbox."""
    describe(parser, run, _EXAMPLES)
    parser.set_defaults(start_broker=start_broker, take_outbox=take_outbox)
    parser.add_argument("--embedded", metavar="DIR", help="start a broker too, and keep its data in this folder")
    its = "the port of the broker of --embedded; 0 for any free one (default: %(default)s)"
    parser.add_argument("--port", type=port, default=9092, help=its)
    _add_kafka(parser, None)
    parser.add_argument(
        "--folder", metavar="DIR", help="the folder of this relay's files (default: out/relay/TOPIC, or in --embedded)"
    )
    group = "the consumer group: relays of one group share the partitions (default: waterclock-relay-TOPIC)"
    parser.add_argument("--group", help=group)
    name = "this relay's name in its group: its partitions wait for it while it restarts (default: one that --folder keeps)"
    parser.add_argument("--name", help=name)
    made = "how many partitions the topic gets if it has to be made (default: %(default)s)"
    parser.add_argument("--partitions", type=count, default=3, metavar="N", help=made)
    targets = (
        "make the topics that messages are for (default: one for a topic that is not there is a dead letter; with "
    )
    targets += "--embedded they are made)"
    parser.add_argument("--make-targets", action="store_true", help=targets)
    lap = "the input is kept within twice what is pending and so many bytes, in each partition (default: %(default)s)"
    parser.add_argument("--lap-bytes", type=count, default=1 << 30, metavar="N", help=lap)
    stands_by = (
        "keep files of the partitions that other relays own too, to go on at once when one dies (default: %(default)s)"
    )
    parser.add_argument("--standby", choices=("all", "none"), default="all", help=stands_by)
    outbox = (
        "take requests from the table waterclock_outbox of this database: postgresql://user@host/shop, or mysql://..."
    )
    parser.add_argument("--outbox", metavar="URL", help=outbox)
    poll = "where no slot and no binlog may be had: ask for them every TIME, such as 1s, in the order of their numbers"
    parser.add_argument("--outbox-poll", metavar="TIME", help=poll)
    parser.add_argument("--json", action="store_true", help="print what was done as JSON, at the end")
    _add_console(parser)
    _add_commands(parser)


def _add_console(parser: ArgumentParser) -> None:
    option.add_to(parser)
    hidden = (
        "show nobody's values and keys in the statistics and on their page: those of dead letters, and the fullest keys"
    )
    parser.add_argument("--hide-values", action="store_true", help=hidden)
    changes = "with --console: let its page cancel messages, deliver them now, and move them to another time"
    parser.add_argument("--allow-changes", action="store_true", help=changes)


def _add_kafka(parser: ArgumentParser, servers: str | None) -> None:
    """What every command here asks for. A default here would hide what stands before the command's name."""
    known = f" (default: {servers})" if servers else ""
    default: dict[str, Any] = {"default": SUPPRESS} if servers else {}
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help=f"where Kafka is{known}", **default)
    topic = "where requests go (default: delays)"
    parser.add_argument("--topic", help=topic, **(default or {"default": "delays"}))
    client = "a file with librdkafka's settings, a line KEY=VALUE for each: TLS and SASL"
    parser.add_argument("--kafka-config", metavar="FILE", help=client, **default)


def _add_commands(parser: ArgumentParser) -> None:
    more = parser.add_subparsers(
        metavar="COMMAND", help="send, cancel, replace, read, ls, due, show, files; COMMAND --help shows more"
    )
    _add_send(more.add_parser("send", help="have a message delivered later"), send, "")
    cancelling = more.add_parser("cancel", help="cancel the messages of an id")
    describe(cancelling, cancel, "waterclock relay cancel cart-17")
    cancelling.add_argument("id", metavar="ID", help="the id that the message was sent with")
    cancelling.add_argument("--key", help="the message's key, if it had one: only its partition is asked")
    _add_json(cancelling)
    _add_kafka(cancelling, SERVERS)
    _add_send(more.add_parser("replace", help="cancel the messages of an id, and send this one instead"), replace, "ID")
    reading = more.add_parser("read", help="print the messages that are delivered to a topic")
    describe(reading, read, "waterclock relay read reminders")
    reading.add_argument("target", metavar="TOPIC", help="the topic that messages are delivered to")
    reading.add_argument(
        "--new", action="store_true", help="only messages that come from now on (default: from the start)"
    )
    reading.add_argument(
        "--most",
        type=count,
        metavar="N",
        help="end after N messages; without --new these are the oldest that the topic holds",
    )
    _add_json(reading)
    _add_kafka(reading, SERVERS)
    _add_look(more.add_parser("ls", help="list what is pending by due time and topic"), ls, "")
    _add_look(more.add_parser("due", help="show what is due next, by partition"), due, "")
    _add_look(more.add_parser("show", help="show what is known of an id"), show, "ID")
    salvaging = more.add_parser("files", help="print the messages of a folder that a relay has set aside")
    describe(salvaging, files, "waterclock relay files out/relay/delays/FOLDER")
    salvaging.add_argument("folder", metavar="FOLDER", help="the folder that the relay named when it set it aside")
    _add_json(salvaging)


def _add_send(parser: ArgumentParser, command: Callable[[Namespace], int], id: str) -> None:
    name = f"{command.__name__} {'cart-17 ' if id else ''}"
    describe(parser, command, f"waterclock relay {name}reminders hello --delay '3 days'")
    if id:
        parser.add_argument("id", metavar="ID", help="the id whose messages this one replaces")
    parser.add_argument("target", metavar="TOPIC", help="where the message is delivered to")
    parser.add_argument("value", metavar="VALUE", help="the message")
    when = parser.add_mutually_exclusive_group(required=True)
    when.add_argument("--delay", metavar="TIME", help="how long to wait: 3s, '1 hour 30 minutes', '3 days'")
    when.add_argument("--at", metavar="TIME", help="when to deliver it: 2026-12-01T09:00Z, or ms since 1970")
    parser.add_argument("--key", help="the message's key")
    late = "do not deliver it after this: a time as for --at, or a time after it is due, as for --delay"
    parser.add_argument("--expires", metavar="TIME", help=late)
    if not id:
        parser.add_argument("--id", default="", help="a name to cancel or replace it by")
    series = "a recurring message, by five fields of cron: '0 9 * * MON-FRI'"
    series += "" if id else "; needs --id, and replaces the messages of that id"
    when.add_argument("--cron", metavar="EXPRESSION", help=series)
    parser.add_argument("--zone", help="the time zone of --cron (default: UTC)")
    missed = "with --cron, what to deliver of occurrences that no relay was up for: one, all, or none (default: once)"
    parser.add_argument("--missed", choices=("once", "all", "skip"), help=missed)
    _add_json(parser)
    _add_kafka(parser, SERVERS)


def _add_look(parser: ArgumentParser, command: Callable[[Namespace], int], id: str) -> None:
    describe(parser, command, f"waterclock relay {command.__name__}{' cart-17' if id else ''}")
    if id:
        parser.add_argument("id", metavar="ID", help="the id that messages were sent with")
    where = "ask a running relay at its --metrics port instead of reading the log; repeat it for each relay of a group"
    parser.add_argument("--at", action="append", type=_door, default=[], metavar="HOST:PORT", help=where)
    _add_json(parser)
    _add_kafka(parser, SERVERS)


def _door(text: str) -> str:
    """Where a web door is; an address as a browser has it will do."""
    found = re.fullmatch(r"(?:http://)?([^/@\s:]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})/?", text)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is no HOST:PORT: write it as {DOOR}")
    return f"{found[1]}:{found[2]}"


def _add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", default=SUPPRESS, help="print it as JSON, for programs")


def run(arguments: Namespace) -> int:
    """`waterclock relay`: messages are delivered when they are due, exactly once, until Ctrl-C."""
    if (arguments.embedded is None) is (arguments.bootstrap is None):
        raise UsageError("Say where Kafka is, --bootstrap HOST:PORT, or have a broker started, --embedded DIR.")
    if arguments.outbox_poll is not None and arguments.outbox is None:
        raise UsageError("--outbox-poll is for rows of a database: say of which one, --outbox URL.")
    if arguments.allow_changes and not arguments.console:
        raise UsageError("--allow-changes is for the page of --console: give both, or neither.")
    from waterclock.relay.process import serve

    return serve(arguments)


def send(arguments: Namespace) -> int:
    """`waterclock relay send`: have a message delivered later, or again and again."""
    from waterclock.relay import asking

    with asking.delays_of(arguments, SERVERS) as delays:
        receipt = asking.sent(delays, arguments)
    print(json.dumps(receipt._asdict()) if arguments.json else f"{receipt.origin} is in the log")
    return 0


def cancel(arguments: Namespace) -> int:
    """`waterclock relay cancel`: have the messages of an id not delivered. Exit code 1 if none is cancelled by now."""
    from waterclock.relay import asking

    with asking.delays_of(arguments, SERVERS) as delays:
        return asking.print_answer(asking.cancelled(delays, arguments), "cancelled", arguments.json)


def replace(arguments: Namespace) -> int:
    """`waterclock relay replace`: cancel what is pending under an id, and send this under it. Exit code 1 if nothing was
    pending; it is sent all the same."""
    from waterclock.relay import asking

    with asking.delays_of(arguments, SERVERS) as delays:
        return asking.print_answer(asking.replaced(delays, arguments), "replaced", arguments.json)


def read(arguments: Namespace) -> int:
    """`waterclock relay read`: what is delivered to a topic, with how late it came, until Ctrl-C."""
    from waterclock.relay import asking

    return asking.read(arguments, SERVERS)


def ls(arguments: Namespace) -> int:
    """`waterclock relay ls`: how many messages are pending, by the span of their due times and their topic; and which of
    them recur. Both logs are read for it, or relays are asked (--at)."""
    from waterclock.relay.watching import listing, view

    listed = listing.ls(arguments.at) if arguments.at else view.ls(arguments, SERVERS)
    return listing.print_listed(listed, arguments.json)


def due(arguments: Namespace) -> int:
    """`waterclock relay due`: what each partition has pending, and when the next of it is due. Both logs are read for it,
    or relays are asked (--at)."""
    from waterclock.relay.watching import listing, view

    due = listing.due(arguments.at) if arguments.at else view.due(arguments, SERVERS)
    return listing.print_due(due, arguments.json)


def show(arguments: Namespace) -> int:
    """`waterclock relay show`: where the messages of an id are: pending, delivered or cancelled. Exit code 1 for none. Both
    logs are read for it, or relays are asked (--at)."""
    from waterclock.relay.watching import listing, view

    shown = listing.show(arguments.at, arguments.id) if arguments.at else view.show(arguments, SERVERS)
    return listing.print_shown(shown, arguments.json)


def files(arguments: Namespace) -> int:
    """`waterclock relay files`: the messages of a folder that a relay has set aside, or reads no more; nothing is changed.
    Exit code 1 if some cannot be read."""
    from waterclock.relay.watching import listing

    return listing.print_files(arguments.folder, arguments.json)
