"""Blocks of ports for the model servers of many models."""

import socket

import pytest

from tfs_proxy.run.many_models.placement import PortBlocks
from tfs_proxy.settings.parsers import PortRange
from tfs_proxy.values.errors import NotEnoughResources


def all_free(_: int) -> bool:
    return True


def test_a_block_that_was_given_back_is_taken_again() -> None:
    """The lowest free one is next."""
    blocks = PortBlocks(PortRange(9000, 9009), servers=1, is_free=all_free)
    for owner in ("first", "second", "third"):
        blocks.take(owner, owner)

    blocks.give_back("second")
    assert blocks.take("fourth", "d") == PortRange(9002, 9003)


def test_a_block_of_which_another_program_has_a_port_is_left_out() -> None:
    foreign = {9001, 9004}
    blocks = PortBlocks(PortRange(9000, 9007), servers=1, is_free=lambda port: port not in foreign)

    assert blocks.take("first", "a") == PortRange(9002, 9003)
    assert blocks.take("second", "b") == PortRange(9006, 9007)
    with pytest.raises(NotEnoughResources, match="by models or by other programs"):
        blocks.take("third", "c")
    foreign.clear()
    assert blocks.take("third", "c") == PortRange(9000, 9001)


def test_a_port_that_is_listened_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        blocks = PortBlocks(PortRange(port, port + 1), servers=1)
        with pytest.raises(NotEnoughResources):
            blocks.take("first", "a")


def test_without_a_range_each_model_takes_free_ports() -> None:
    assert PortBlocks(None, servers=1).take("first", "a") is None


def test_a_range_that_is_used_up_refuses_the_next_model() -> None:
    """Two ports of five are not enough for a third model."""
    blocks = PortBlocks(PortRange(9000, 9004), servers=1, is_free=all_free)
    blocks.take("first", "a")
    blocks.take("second", "b")

    with pytest.raises(
        NotEnoughResources, match="SAGEMAKER_SAFE_PORT_RANGE=9000-9004 has ports for 2 models"
    ):
        blocks.take("third", "c")
