"""Run every model: sound with its safeguards, broken without any one of them. Exits with 0 if all is as expected.

python run.py                           everything (about six minutes)
python run.py --quick                   the same models with fewer kills (about two minutes)
python run.py holds                     one model
python run.py holds --without rebuild   one run, with the trace
python run.py holds --kills 1           with at most so many kills
"""

import argparse
import sys

from broadcast import Broadcast, Rows
from channel import Fetching, Session
from explore import Model, Result, explore
from fork import Failover, Forking
from handover import Handover, LostRings
from holds import Holds, TwoClients
from lock import Lock
from moves import Following, Incoming, Outgoing
from reach import Cycles
from ring import Ending, Transfer
from succession import Succession
from takeover import Takeover
from tickets import Tickets

# A model and the kills it is run with: in full, quick, and without a safeguard (enough to break it).
MODELS: dict[str, tuple[type[Model], int, int, int]] = {
    "holds": (Holds, 3, 2, 2),
    "two-clients": (TwoClients, 3, 1, 1),
    "tickets": (Tickets, 2, 1, 1),
    "fork": (Forking, 4, 3, 2),
    "failover": (Failover, 5, 3, 2),
    "ring": (Transfer, 4, 2, 1),
    "ring-end": (Ending, 3, 2, 1),
    "cycles": (Cycles, 2, 0, 1),
    "lock": (Lock, 2, 1, 1),
    "broadcast": (Broadcast, 2, 1, 1),
    "broadcast-rows": (Rows, 2, 0, 1),
    "takeover": (Takeover, 3, 2, 2),
    "handover": (Handover, 3, 2, 2),
    "lost-rings": (LostRings, 3, 1, 1),
    "succession": (Succession, 4, 3, 2),
    "moves": (Outgoing, 2, 1, 2),
    "moves-in": (Incoming, 3, 2, 2),
    "moves-readers": (Following, 1, 0, 1),
    "session": (Session, 3, 2, 3),
    "session-fetch": (Fetching, 2, 1, 2),
}


def runs(name: str, quick: bool) -> list[tuple[str | None, int, bool]]:
    """(what is left out, kills, whether a violation is expected) for each run of one model."""
    model, full, few, enough = MODELS[name]
    return [
        (None, few if quick else full, False),
        *((other, few if quick else full, False) for other in model.alternatives),
        *((safeguard, enough, True) for safeguard in model.safeguards),
    ]


def show(name: str, without: str | None, kills: int, expected: bool, result: Result) -> bool:
    """Print one line of the table; return whether the result was expected."""
    good = bool(result.violation) == expected
    verdict = result.violation or "no violation"
    left_out = f"without {without}" if expected else without or "all safeguards"
    mark = "ok" if good else "NOT AS EXPECTED"
    print(f"{name:14} {left_out:32} {kills:5} {result.states:9,} {result.seconds:7.1f}  {mark}: {verdict}", flush=True)
    return good


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="*", choices=[*MODELS, []], help="default: all")
    parser.add_argument("--quick", action="store_true", help="fewer kills")
    parser.add_argument(
        "--without", metavar="SAFEGUARD", help="leave one out of the one model named, and print the trace"
    )
    parser.add_argument("--kills", type=int, metavar="N", help="at most N kills in all runs")
    options = parser.parse_args(arguments)
    names = options.model or list(MODELS)
    if options.without and (len(names) != 1 or options.without not in MODELS[names[0]][0].safeguards):
        parser.error(
            "--without takes one model and one of its safeguards: " + ", ".join(MODELS[names[0]][0].safeguards)
        )
    print(f"{'model':14} {'run':32} {'kills':>5} {'states':>9} {'seconds':>7}  verdict")
    good = True
    for name in names:
        for without, kills, expected in runs(name, options.quick):
            if options.without in (None, without):
                kills = kills if options.kills is None else options.kills
                result = explore(MODELS[name][0](kills, without))
                fine = show(name, without, kills, expected, result)
                if options.without or not fine:
                    print(*(f"    {n:3} {label}" for n, label in enumerate(result.trace, 1)), sep="\n")
                good = good and fine
    print("all as expected" if good else "NOT ALL AS EXPECTED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
