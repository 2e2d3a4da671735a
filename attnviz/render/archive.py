"""Writes members of zip archives without date and system, so that equal contents give equal bytes."""

import zipfile

ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip archive can store
UNIX = 3


def undated_member(name: str, compression: int = zipfile.ZIP_STORED) -> zipfile.ZipInfo:
    """Returns the header of an archive member, which is the same on every system and at any time."""
    member = zipfile.ZipInfo(name, ZIP_EPOCH)
    member.create_system = UNIX
    member.compress_type = compression
    return member
