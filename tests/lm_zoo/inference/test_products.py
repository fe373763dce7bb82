import subprocess
import sys
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lm_zoo.inference import products
from lm_zoo.inference.products import WIDE, make_product

GROWTH = """
import ctypes, torch
from lm_zoo.inference.products import make_product

class Heap(ctypes.Structure):
    _fields_ = [(f"field{number}", ctypes.c_size_t) for number in range(10)]

mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Heap
torch.set_num_threads(1)
x, product = torch.ones(700, 128), make_product(torch.ones(64, 128), torch.ones(64), "DTYPE")
for rows in range(100, 600, 10):
    product(x[:rows])
before = mallinfo().field7  # bytes in use
for rows in range(100, 600):
    product(x[:rows])
print(mallinfo().field7 - before)
"""


class Spied:
    """A product that remembers what it was asked for."""

    def __init__(self, product: Callable[..., Tensor]) -> None:
        self.product, self.dtypes = product, set[torch.dtype]()

    def __call__(self, x: Tensor, *others: Tensor | None) -> Tensor:
        self.dtypes.add(x.dtype)
        return self.product(x, *others)


@pytest.mark.skipif(sys.platform != "linux", reason="asks the GNU C library what is in use")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_of_many_numbers_of_rows_do_not_fill_memory(dtype: str) -> None:
    ran = subprocess.run([sys.executable, "-c", GROWTH.replace("DTYPE", dtype)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < 5 << 20  # 450 kernels more, 40 KB each at least, if there were one for each number of rows


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_a_product_goes_to_other_processes(dtype: str) -> None:
    """By multiprocessing's pickles, in which torch has tensors lie in shared memory."""
    product, x = make_product(torch.randn(6, 8), torch.randn(6), dtype), torch.randn(3, 8)
    other = ForkingPickler.loads(ForkingPickler.dumps(product))
    assert torch.equal(other(x), product(x))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("shape", [(0, 8), (1, 8), (37, 8), (5, 7, 8)])
def test_a_product_does_not_depend_on_the_number_of_rows(dtype: str, shape: tuple[int, ...]) -> None:
    product = make_product(torch.randn(6, 8), torch.randn(6), dtype)
    x = torch.randn(*shape)
    alone = [product(row[None]) for row in x.reshape(-1, 8)]
    expected = torch.cat(alone) if alone else torch.zeros(0, 6)
    assert product(x).shape == (*shape[:-1], 6)
    torch.testing.assert_close(product(x).reshape(-1, 6), expected)


@pytest.mark.parametrize("bias", [True, False])
def test_where_bfloat16_is_slow_products_are_of_float32_and_the_same(
    bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    weight, added, x = torch.randn(6, 8), torch.randn(6) if bias else None, torch.randn(5, 7, 8)
    found, inside = {}, {}
    for slow in (False, True):
        monkeypatch.setattr(products, "slow_in_bfloat16", lambda slow=slow: slow)
        made = make_product(weight, added, "bfloat16")
        with monkeypatch.context() as patch:
            patch.setattr(F, "linear", spied := Spied(F.linear))
            found[slow] = made(x)
        inside[slow] = spied.dtypes
    assert inside[False] == {torch.bfloat16} and torch.bfloat16 not in inside[True]
    torch.testing.assert_close(found[True], found[False], rtol=2.0**-7, atol=1e-5)  # of sums, the last digit


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_results_of_weights_in_half_precision_are_not_rounded(dtype: torch.dtype, bias: bool) -> None:
    weight, added, x = (torch.randn(*shape).to(dtype) for shape in ((6, 8), (6,), (5, 7, 8)))
    expected = x.double() @ weight.double().t() + (added.double() if bias else 0.0)
    found = make_product(weight, added if bias else None)(x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(WIDE is None, reason="torch 2.8 has such products")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_results_of_half_precision_on_a_gpu(dtype: torch.dtype) -> None:
    """Shapes and formats, without the numbers."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        weight, bias, x = (torch.empty(*shape, device="cuda", dtype=dtype) for shape in ((6, 8), (6,), (5, 7, 8)))
        found = make_product(weight, bias)(x)
    assert (found.dtype, found.shape, found.device.type) == (torch.float32, (5, 7, 6), "cuda")
