"""How files of `torch.save` begin that are no zip archives."""

__all__ = ["LEGACY_MAGIC"]

LEGACY_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""The pickled magic number (`torch.serialization`)."""
