"""Blocks of ports for the model servers of many models."""

import pytest

from tfs_proxy.errors import NotEnoughResources
from tfs_proxy.multimodel.capacity.ports import PortBlocks
from tfs_proxy.setting_values import PortRange


def test_models_get_blocks_that_do_not_overlap() -> None:
    """One behind the other, each with two ports for each server."""
    blocks = PortBlocks(PortRange(9000, 9009), servers=2)

    assert blocks.take("first", "a") == PortRange(9000, 9003)
    assert blocks.take("second", "b") == PortRange(9004, 9007)


def test_a_block_that_was_given_back_is_taken_again() -> None:
    """The lowest free one is next."""
    blocks = PortBlocks(PortRange(9000, 9009), servers=1)
    for owner in ("first", "second", "third"):
        blocks.take(owner, owner)

    blocks.give_back("second")
    assert blocks.take("fourth", "d") == PortRange(9002, 9003)


def test_a_range_that_is_used_up_refuses_the_next_model() -> None:
    """Two ports of five are not enough for a third model."""
    blocks = PortBlocks(PortRange(9000, 9004), servers=1)
    blocks.take("first", "a")
    blocks.take("second", "b")

    with pytest.raises(
        NotEnoughResources, match="SAGEMAKER_SAFE_PORT_RANGE=9000-9004 has ports for 2 models"
    ):
        blocks.take("third", "c")


def test_without_a_range_each_model_takes_free_ports() -> None:
    """Which the kernel gives."""
    assert PortBlocks(None, servers=1).take("first", "a") is None
