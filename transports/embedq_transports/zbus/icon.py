"""The icon that browsers ask every HTTP server for: one transparent dot.

Knows: the format of icons.
Does not know: who asks.
"""

import struct
from typing import Final

_DOT: Final = struct.pack("<IiiHHIIiiII", 40, 1, 2, 1, 32, 0, 8, 0, 0, 0, 0) + bytes(8)
_ENTRY: Final = struct.pack("<BBBBHHII", 1, 1, 0, 0, 1, 32, len(_DOT), 22)
ICON: Final = struct.pack("<HHH", 0, 1, 1) + _ENTRY + _DOT
