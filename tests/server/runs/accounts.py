"""Whether a run's books are right, whoever drove it and however often its servers were killed."""

from tritonforge.profiling.optimization.model import BASELINE, Attempt
from tritonforge.server.runs.store import Store


def wrong(store: Store, run_id: str) -> list[str]:
    """What can't be, a line each."""
    run, attempts = store.run(run_id), store.attempts(run_id)
    known = {attempt.number: attempt for attempt in attempts}
    said = store.check()
    if list(known) != list(range(len(attempts))):
        said.append(f"the numbers are {list(known)}")
    if not attempts:
        said.append("there is no baseline")
    budget = run.frozen.budget.attempts
    spent = [each.number for each in attempts if each.counted and each.state in ("running", "finished")]
    if len(spent) > budget:
        said.append(f"{spent} cost an attempt each, of {budget}")
    for attempt in attempts:
        said += _wrong_of(attempt, known)
    chain = _chain(known, run.incumbent)
    accepted = {attempt.number for attempt in attempts if attempt.accepted}
    if set(chain) != accepted | {BASELINE} or len(chain) != len(accepted) + 1:
        said.append(f"accepted were {sorted(accepted)}, and each beat the one before it: {chain}")
    return said


def _wrong_of(attempt: Attempt, known: dict[int, Attempt]) -> list[str]:
    name, said = f"attempt {attempt.number}", list[str]()
    if (attempt.state == "finished") != (attempt.evidence is not None and attempt.finished_at is not None):
        said.append(f"{name} is {attempt.state}, and that is not what it looks like")
    if attempt.parent is not None and attempt.parent not in known:
        said.append(f"{name}: its parent is unknown")
    if attempt.state == "finished" and (attempt.verdict is None) != (attempt.duplicate_of is not None):
        said.append(f"{name}: verdict {attempt.verdict}, a duplicate of {attempt.duplicate_of}")
    if attempt.duplicate_of is not None:
        first = known.get(attempt.duplicate_of)
        if first is None or first.duplicate_of is not None or first.evidence != attempt.evidence or attempt.counted:
            said.append(f"{name} is no duplicate of {attempt.duplicate_of}")
    if attempt.accepted and (attempt.verdict is None or not attempt.verdict.accepted):
        said.append(f"{name} is accepted without a verdict that says so")
    return said


def _chain(known: dict[int, Attempt], incumbent: int) -> list[int]:
    """From the incumbent back to the baseline, each compared with the one that it took the place of."""
    chain = [incumbent]
    while chain[-1] != BASELINE and len(chain) <= len(known):
        evidence = known[chain[-1]].evidence
        assert evidence is not None
        confirmed = None if evidence.confirmation is None else evidence.confirmation.timing
        beaten = max(timing.against for timing in evidence.timings)
        # The second look was beside the same one.
        assert confirmed is None or confirmed.against == beaten
        chain.append(beaten)
    return chain
