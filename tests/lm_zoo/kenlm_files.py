"""KenLM binary files of `zoo.ARPA`, made by KenLM's `build_binary probing` and `build_binary trie`, packed."""

from __future__ import annotations

import base64
import zlib


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


PROBING = _unpacked(
    "eNrLzU0sUMjJVcgoKSmw0tfPzkhNTMtMzUnRS87P1U/OT0lVSMsvyk0sUShLLSrOzM9TMOViQIAGeyCxnxFI/AcCkAgjVIYJTB6w"
    "RxZjh9IsDKgAJB6x/pFstnpYExuaHFfO94+1xQ+yQeaxN3T5X+ISNWcGstlm/dknmi/EhG4WLlBQp7jXsq0U7Jb1Vsf02X/UHGUF"
    "smfNnLkf5BEGhmOHgOx9aWlpIDc3GBsb258947MPiIH0mX1Aof1Aeu+smZL2EPUQwPGJKaNlo7EwSG9j0dsPtdU1rSD1JuUsa+5L"
    "rbMEmYHLTZpt5hf2HGpWAIWhTWleth2DTTEQ6wMJRwYnBmcGFwYAZ+RiRQ=="
)
TRIE = _unpacked(
    "eNrLzU0sUMjJVcgoKSmw0tfPzkhNTMtMzUnRS87P1U/OT0lVSMsvyk0sUShLLSrOzM9TMOViQIAGeyCxnxFI/AcCkAgjVIYJTB6w"
    "Z4KKgTA7VI4FyQQ2KF1Qp7jXsq2UgW3Wn32i+UJM7A1d/pe4RM25cr5/rC1+kB2x/pFstnpY03qrY/rsP2qOwvTPmjlzP8ghCBOP"
    "HQKK7YPxzp7x2X/2zBk439jYGMj32QdzZ1paGlg/E9w8STCfGeFHkP69yG5G9wMyuHzmzJelM2feVAdqnD975swaFFmb0rxsOwab"
    "YjsGJwZHBht9IMOFwZkBAEjzVhU="
)
