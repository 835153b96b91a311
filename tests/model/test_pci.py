"""Every spelling of a PCI address is one address."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.pci import PciAddress, pci_key


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0000:3b:00", "0000:3b:00.0"),
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("PCI:0000:3b:00", "0000:3b:00.0"),
        ("3b:00.0", "0000:3b:00.0"),
        ("000F:01:00.0", "000f:01:00.0"),
        ("10000:e1:1c.7", "10000:e1:1c.7"),
        (" 0000:10:1c\n", "0000:10:1c.0"),
    ],
)
def test_spellings_become_one(text: str, canonical: str) -> None:
    assert str(PciAddress.parse(text)) == canonical


@pytest.mark.parametrize("text", ["", "GPU-1", "0000:3b", "0000:3b:20", "0000:3b:00.8", "000:3b:00", "٣b:00"])
def test_anything_else_is_refused(text: str) -> None:
    assert pci_key(text) is None
    with pytest.raises(ValueError, match="not a PCI address"):
        PciAddress.parse(text)


def test_unknown_stays_unknown() -> None:
    assert pci_key(None) is None


@given(st.builds(PciAddress, st.integers(0, 2**32 - 1), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7)))
def test_each_form_leads_back(address: PciAddress) -> None:
    assert PciAddress.parse(str(address)) == address
    assert PciAddress.parse(address.nvml) == address
    assert pci_key(address.nvml) == address.key == str(address).rpartition(".")[0]


def test_nvml_form() -> None:
    assert PciAddress.parse("0000:3b:00").nvml == "00000000:3B:00.0"
