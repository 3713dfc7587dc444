from typing import final

@final
class ValueTable: ...
