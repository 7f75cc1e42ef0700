"""The base of every model that crosses a boundary: tool input and output, disk, worker frames."""

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """Immutable, strict about unknown fields and numbers that JSON lacks; attribute docstrings become descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
