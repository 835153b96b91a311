"""What msgspec says of a text that is not as it should be, whoever wrote it."""

import msgspec

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
