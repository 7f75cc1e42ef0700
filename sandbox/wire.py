"""The base of every model that crosses a boundary: tool input and output, disk, worker frames."""

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """Immutable, strict about unknown fields; attribute docstrings become schema descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
