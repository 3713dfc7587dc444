"""What all threads of a process share: kept numbers, plans, operators, hooks of shared leaves, locks at a fork."""

from __future__ import annotations

import threading

import torch

import autograd_opt as ao


def elsewhere(work):
    """Run `work` in a thread of its own, to its end."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def plus(number):
    x = torch.ones(1, requires_grad=True)
    with ao.AutogradGraph():
        return (x + number).item()


def test_a_number_that_is_being_kept_gives_its_place_to_another(monkeypatch):
    """While one thread makes the tensor of 7.125, another fills every place of the table with other numbers."""
    others, make = [1000.25 + i for i in range(4000)], torch.tensor

    def interrupted(*args, **kwargs):
        monkeypatch.setattr(torch, "tensor", make)
        elsewhere(lambda: [plus(n) for n in others])
        return make(*args, **kwargs)

    assert plus(7.125) == 8.125          # met once
    monkeypatch.setattr(torch, "tensor", interrupted)
    assert plus(7.125) == 8.125          # met again: kept
    assert torch.tensor is make
    assert [plus(n) for n in reversed(others)] == [1.0 + n for n in reversed(others)]
