from typing import final

@final
class Merges:
    twins: int
    merging: int
    handed: int
