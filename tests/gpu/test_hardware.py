"""hardware_spec on a real GPU: what is there, and what it reaches beside its data sheet."""

import pytest

from tests.gpu.conftest import Call

pytestmark = [pytest.mark.gpu, pytest.mark.anyio]

RATES = (
    "read_bytes_per_s",
    "copy_bytes_per_s",
    "write_bytes_per_s",
    "fp32_flops_per_s",
    "tf32_flops_per_s",
    "bf16_flops_per_s",
)


async def test_hardware_spec_describes_the_gpu_that_is_there(call: Call) -> None:
    result = await call("hardware_spec", detail=True)
    assert result["kind"] == "ok"
    details = result["details"]
    assert details["gpus"][0]["sm_clock_hz"] > 0
    assert details["torch_gpu"]["registers_per_sm"] == details["limits"]["registers_per_sm"]
    status = {check["name"]: check["status"] for check in result["checks"]}
    assert status["driver"] == status["GPU in torch"] == "ok"


async def test_what_is_measured_is_plausible_beside_the_data_sheet_and_kept(call: Call) -> None:
    result = await call("hardware_spec", measure=True, detail=True)
    assert result["kind"] == "ok", result
    measured, sheet = result["measured"], result["details"]["data_sheet"]
    assert measured["absent"].keys() <= {"fp8_flops_per_s"}, measured["absent"]
    shares = result["measured_pct"]
    if shares is not None:
        for field in RATES:
            # Matrix products run at the clocks that the power limit allows; the rest is what an idle device gives.
            assert 50 < shares[field] < 125, (field, shares)
        assert shares["fp32_flops_per_s"] > 75
        assert measured["l2_read_bytes_per_s"] > 1.1 * sheet["memory_bytes_per_s"]
    assert measured["l2_read_bytes_per_s"] > measured["read_bytes_per_s"]
    assert 0.3 < measured["launch_us"] < 20
    assert (await call("hardware_spec"))["measured"] == measured
