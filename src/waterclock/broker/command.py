"""`waterclock broker`, and `waterclock broker promote`."""

from __future__ import annotations

import argparse

from waterclock.arguments import describe, seconds
from waterclock.web import option


def add_to(parser: argparse.ArgumentParser) -> None:
    """The options, and those of `promote`."""
    describe(parser, run, "waterclock broker --port 9092 --data out/broker --set num.partitions=4")
    port = "the port to listen on; 0 for any free one (default: %(default)s)"
    parser.add_argument("--port", type=int, default=9092, help=port)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument("--data", metavar="DIR", help="the folder of all data (default: a temporary one)")
    kept = "a setting, by Kafka's name; may be repeated"
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=kept)
    users = "a file with a line name:password for each user; clients must then log in (SASL)"
    parser.add_argument("--users", metavar="FILE", help=users)
    certificate = "the broker's certificate, a PEM file; clients must then use TLS"
    parser.add_argument("--tls-cert", metavar="FILE", help=certificate)
    parser.add_argument("--tls-key", metavar="FILE", help="the certificate's key, a PEM file")
    parser.add_argument("--advertise", metavar="HOST[:PORT]", help="the address that clients are told to connect to")
    parser.add_argument("--insecure-remote", action="store_true", help="let other machines in without users and TLS")
    parser.add_argument("--settings", action="store_true", help="list the settings with their defaults, and end")
    every = "print statistics to stderr, a line of JSON each time"
    parser.add_argument("--statistics-every", type=seconds, metavar="SECONDS", help=every)
    option.add_to(parser)
    parser.add_argument("--follow", metavar="HOST:PORT", help="copy all that the broker there has; lead once promoted")
    _add_link(parser, "at the other broker of the pair; with --users nobody else may follow")
    more = parser.add_subparsers(metavar="promote", help="make a follower the leader; see promote --help")
    parser = more.add_parser("promote", help="make a follower the leader")
    describe(parser, promote, "waterclock broker promote --at 127.0.0.1:9093")
    parser.add_argument("--at", metavar="HOST:PORT", required=True, help="where the follower listens")
    unclean = "promote it even if it has copied nothing yet: what it lacks is lost"
    parser.add_argument("--unclean", action="store_true", help=unclean)
    _add_link(parser, "there")


def _add_link(parser: argparse.ArgumentParser, where: str) -> None:
    login = f"a file with one line name:password, to log in {where} (or: WATERCLOCK_LINK_LOGIN)"
    parser.add_argument("--link-login", metavar="FILE", help=login)
    mechanism = "how to log in: SCRAM-SHA-256, SCRAM-SHA-512, or with TLS also PLAIN (default: %(default)s)"
    parser.add_argument("--link-mechanism", default="SCRAM-SHA-256", metavar="NAME", help=mechanism)
    ca = "a PEM file of certificates to check the other broker's by; the connection to it then uses TLS"
    parser.add_argument("--link-ca", metavar="FILE", help=ca)


def run(arguments: argparse.Namespace) -> int:
    """`waterclock broker`: Kafka's protocol on one machine, until Ctrl-C."""
    from waterclock.broker import process

    if arguments.settings:
        print(process.listed())
    else:
        process.serve(process.options_of(arguments))
    return 0


def promote(arguments: argparse.Namespace) -> int:
    """`waterclock broker promote`: a follower becomes the leader, and the old leader is shut out when it comes back."""
    from waterclock.broker.process import link_of
    from waterclock.broker.replication import promoting

    promoting.promote(arguments.at, arguments.unclean, link_of(arguments))
    print(f"the broker at {arguments.at} leads")
    return 0
