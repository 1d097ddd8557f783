"""CPU time is shared among those that run while it is used, and never more than was admitted."""

from __future__ import annotations

from hypothesis import given, strategies as st

from tenantry_runtime.workers.engine.allowance import CpuAllowance, Ticket


def test_one_invocation_alone_has_used_all_that_was_used_while_it_ran() -> None:
    allowance = CpuAllowance(cpu_ns=1000)
    allowance.read(1500)
    ticket = allowance.admit()
    allowance.read(1700)
    assert allowance.most_ns() == 200
    assert allowance.end(ticket) == 200


def test_two_invocations_share_what_is_used_while_both_run() -> None:
    allowance = CpuAllowance(cpu_ns=0)
    first = allowance.admit()
    allowance.read(100)
    second = allowance.admit()
    allowance.read(300)
    assert allowance.end(first) == 200
    allowance.read(350)
    assert allowance.end(second) == 150


def test_what_an_invocation_leaves_is_no_other_s_to_use() -> None:
    allowance = CpuAllowance(cpu_ns=0)
    for _ in range(1000):
        allowance.end(allowance.admit())
    allowance.admit()
    allowance.read(77)
    assert allowance.most_ns() == 77


def test_the_largest_share_is_that_of_the_oldest_that_still_runs() -> None:
    allowance = CpuAllowance(cpu_ns=0)
    oldest = allowance.admit()
    allowance.read(60)
    allowance.admit()
    allowance.admit()
    allowance.read(90)
    assert allowance.most_ns() == 70
    allowance.end(oldest)
    assert allowance.most_ns() == 10


def test_time_without_invocations_is_nobody_s() -> None:
    allowance = CpuAllowance(cpu_ns=0)
    assert allowance.read(500) == 500
    assert allowance.most_ns() == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10**9)), max_size=60))
def test_shares_add_up_to_what_was_used_while_anything_ran(
    steps: list[tuple[bool, int]],
) -> None:
    allowance = CpuAllowance(cpu_ns=0)
    running: list[Ticket] = []
    clock = used = 0
    shares = 0.0
    for begins, cpu_ns in steps:
        clock += cpu_ns
        used += cpu_ns if running else 0
        allowance.read(clock)
        if begins or not running:
            running.append(allowance.admit())
        else:
            shares += allowance.end(running.pop(0))
    shares += sum(allowance.end(ticket) for ticket in running)
    assert abs(shares - used) <= 1e-6 * max(used, 1)
