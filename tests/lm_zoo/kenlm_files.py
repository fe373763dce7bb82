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

# Of 30 made-up sentences of six words, order 3: `build_binary trie`, and with quantised values and pointers in arrays,
# `build_binary -q 3 -b 3 -a 22 trie`.
TRIGRAMS = _unpacked(
    "eNrLzU0sUMjJVcgoKSmw0tfPzkhNTMtMzUnRS87P1U/OT0lVSMsvyk0sUShLLSrOzM9TMOViQIAGeyCxnxFI/AcCkAgjVIYZTB6wZ4KKgTAnVE4H"
    "SkcimcQBpQvqFPdatpUysM36s080X4gponde5/2QDjP2hi7/S1yi5lw53z/WFj/Ijlj/SDZbPaxpvdUxffYfNUczTKSyObv6X8LMO2J3eD/IgUhW"
    "MLQIK+yHsfel+u/fk/lhH4zPxpO4P0pq2z52JL5l5ox9vEh8kHnCSPoz5t7eJ4kkLzibfb8CEn/rZrN9agyoQIcBOyiU9vhsvcz3DWvHyWnn/Y1l"
    "DosbpLGV7ndxE4hn8mXZ/efeeqUa3m+93z9vVkh84Xtnw+NjIEXTG/9UWIEVeWSITv/Dl+5crdoUafwlWWLim6k8yvoP+sNPH7ru1L+gCKTofndl"
    "bcMfIUnHGsPtyn0/vFNYPj49cs74sv+frkPble9NmgBWdG5Dzr+/IEW2JT8CPoMUsd7ts3ikP1HwSHnLy4vO+7+v5oiflHCN5y/I3b6bSws/gCI7"
    "ZOJygzv8QMaH1Dh5BVC6OHDDcDXbH5Ci7Blytl9Aiq64+sy4AXa4+q65cWCH35sheQVsXX3L3aRvIOt4b4kevw+2rqJpdQtYkdKnxy/BDu8+yF74"
    "7TLP8Q+2XHs8b4IUfbeQeOFsH6fLHa9ayXUYbNJstSemYN/V3oM63FyqRiDd/mwBT/zKA7On/F0Vcaxm6eET3GBFay8pr7gDUnQ9KzYPbN391287"
    "lP+BTNoIi54TTDDWQ+mfX4RFHiyeP7dU5m/BvHlP1OeEhe9fuGjej4uHWE+9D2niq9sx4dhr7uUzOufb+Ez786z68UPx7Scl7Qt/3fghKL173/kb"
    "N77WNnbzfNys+Scm/s/3ij9HHPJfmofMV7e3mrjgx9GPWx/1h5TPr1N0Pv9R+Mr0TvmF+3z+9ByXuKo+qSHOvsS1/Zerd+yl835+a+oMgyd/nNwW"
    "En1/zaW6P4d+JzwT5/Yw2a+Y9ftrZ+O9S/1+Khp17JV2n51XnZ88/0Ne6h81Q80H7g7nptopG6T8kJ1QvDQ/Rammjl1H+xPIovsFb/795via+qhd"
    "Zvd/u0xLlx++qVc39l84u7u2Le/e2917VnvM12BL/tW34u119cpj8fsNq9b+jD3JeNHfYu26ujZN/q/c+z/NuL9E6OmfpgXzX4nbXYvcPyG9+OdF"
    "kbp1+g7SM+qczPd82VwRPDve5uerPypTFj1Lt2g23f8i6PCviZc2Xn5/4PzuWo43cz4Jezqsn3+BV/9vm4Pk8/JJfcr7d9SY/p746t3l/jz1CXXG"
    "Ciu+MCNnHZvSvGw7BptiOwYnBlcGRwYbfSDThcGZwY0BAOLl6F0="
)
QUANTISED_ARRAYS = _unpacked(
    "eNrLzU0sUMjJVcgoKSmw0tfPzkhNTMtMzUnRS87P1U/OT0lVSMsvyk0sUShLLSrOzM9TMOViQIAGeyCxnxFI/AcCkAgjVIYZTB6wZ4WKgTAnVE4H"
    "SkcimcQBpQvqFPdatpUysM36s080X4gponde5/2QDjP2hi7/S1yi5lw53z/WFj/Ijlj/SDZbPaxpvdUxffYfNUczTKSyObv6X8LMY2KGuOBrdtf+"
    "Cq+m/Q6iZfvrr2Tuv3Y0fL/Ob8f9pbdM92vzie8HeQKkTnu59r7OHgUwTnSV3/ebU2LfZonje9sqE/bvZ/Hb/6vOcb9RjcH+AyoK+/1ihffzyPze"
    "1+u3bt8Ru8NwM2CgRVhhP4y9L9V//57MD/tgfDaexP1RUtv2sSPxLTNn7ONF4oPME0bSnzH39j5JJHnB2ez7FZD4Wzeb7VNjQAU6DDiAGFbRQuYj"
    "rGdcFG4n5D+qYTs34YfqJ69jGy+UbJQtZla/08czN9LGpDlPYqG30BWTHV0Lpj/ceDi749WhxydPzH7pHn1h2kNdlzndD2VTrftWL1mZefpzW0ZF"
    "0MUlm0MyN90q2svI7QC3VHAip+YMofM/VhRIiUw6G1gdYLSETcNR86reARedwJ8GYrO9V5gvKfHZfs/d/eWMrmnnTj7b/UdvxlyWaTc0hDouKgtF"
    "e6RxB5yzaEwp4wnQEIY736Y0L9uOwabYjsGJwZXBkcFGH8h0YXBmcGMAAB1k1kE="
)
