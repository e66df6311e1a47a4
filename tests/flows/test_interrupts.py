"""A signal never lands inside an append, and is never lost."""

import os
import signal

import pytest

from flows.interrupts import Shield, shielded


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_shield_to_go_down(number: signal.Signals):
    done = []

    def append_under(shield: Shield) -> None:
        with shield.raised():
            os.kill(os.getpid(), number)
            done.append("the append")
        done.append("not reached")

    with shielded() as shield, pytest.raises(KeyboardInterrupt):
        append_under(shield)
    assert done == ["the append"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_without_the_shield_raised_it_interrupts_at_once(number: signal.Signals):
    with shielded(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)


def test_a_handler_that_was_there_is_still_the_one_that_handles():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        with shielded() as shield, shield.raised():
            os.kill(os.getpid(), signal.SIGTERM)
            assert seen == []
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_handlers_are_put_back():
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with shielded():
        pass
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before
