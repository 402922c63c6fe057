"""Play runs of the model: `python -m tests.model 17`, or `--from 0 --count 300`."""

import argparse
import logging
import os
import sys
import zlib

import structlog


def main() -> int:
    """Play the runs that the command line selects; return 1 if one of them fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("seeds", type=int, nargs="*", metavar="SEED", help="runs to trace")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--systems", action="store_true", help="other systems in every run")
    parser.add_argument("--actions", action="store_true", help="actions and hooks in every run")
    parser.add_argument("--digest", action="store_true", help="print a digest of each run")
    parser.add_argument("--sweep", metavar="SETTING", help="crash at every request of a rollout")
    parser.add_argument("--deadline", metavar="WHAT", help="print how soon the operator reacts")
    parser.add_argument("--design", metavar="NAME", help="play a designed run, or all of them")
    parser.add_argument("--record", action="store_true", help="replace the records (NP-06)")
    parser.add_argument("--compare", action="store_true", help="compare with the records")
    parser.add_argument("--step", type=int, default=1, help="or at every so many")
    parser.add_argument("--log", action="store_true", help="show the operator's own log")
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets influences a run.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.model", *sys.argv[1:]])
    if not given.log:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    special = play_special(given)
    if special is not None:
        return special
    from tests.model.run import run

    failures = 0
    for seed in given.seeds or range(given.first, given.first + given.count):
        wrong, lines = run(seed, with_systems=given.systems, with_actions=given.actions)
        if given.digest:
            say(f"digest {seed} {zlib.crc32(chr(10).join(lines).encode())}")
        elif given.seeds or wrong:
            say(*(lines if given.seeds else lines[-80:]))
        if given.seeds or wrong:
            say(f"seed {seed}: {wrong or 'nothing wrong'}")
        if wrong:
            failures += 1
            say(f"NAVARCHOS_SEED={seed}; for the whole trace: python -m tests.model {seed}")
    return int(bool(failures))


def play_special(given: argparse.Namespace) -> int | None:
    """Play designed runs, if the command line asks for them; return its exit status."""
    if given.sweep:
        from tests.model.sweeping import sweep

        faults, passes = sweep(given.sweep, given.step)
        say(*faults, f"{passes} passes")
        return int(bool(faults))
    if given.record or given.compare:
        from tests.model.recording import compare, write_records

        differences = write_records() if given.record else compare()
        say(*differences)
        return int(bool(differences))
    if given.design:
        from tests.model.designs import DESIGNS, play_design
        from tests.model.designs_actions import ACTION_DESIGNS, play_action_design

        names = [*DESIGNS, *ACTION_DESIGNS] if given.design == "all" else [given.design]
        found = [play_design(n) if n in DESIGNS else play_action_design(n) for n in names]
        wrong = [text for text in found if text]
        say(*wrong, f"{len(names)} designs")
        return int(bool(wrong))
    if given.deadline:
        from tests.model.deadlines import measure

        say(f"{measure(given.deadline)} s")
        return 0
    return None


def say(*lines: str) -> None:
    """Write lines immediately, so that a run that hangs shows its last line."""
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
