from collections.abc import Callable
from typing import Any

def name_options(cls: type, refuse: Callable[[type, dict[str, Any]], None]) -> None: ...
