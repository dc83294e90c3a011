"""TensorFlow's data types, by number and name."""

from tfs_proxy.wire.data_types import data_type_name
from tfs_proxy.wire.protos import POOL


def test_names_and_numbers_are_those_of_the_messages() -> None:
    """The schema's enum has the same types, references included."""
    values = POOL.FindEnumTypeByName("tensorflow.DataType").values

    assert {value.number: data_type_name(value.number) for value in values} == {
        value.number: value.name for value in values
    }


def test_an_unknown_type_is_shown_by_its_number() -> None:
    """A newer TensorFlow may have types that are not known here."""
    assert data_type_name(99) == "DT_99"
