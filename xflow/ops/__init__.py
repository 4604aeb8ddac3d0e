"""The operators. Importing this package fills the registry."""

from xflow.ops import constants as constants
from xflow.ops import conv as conv
from xflow.ops import elementwise as elementwise
from xflow.ops import functions as functions
from xflow.ops import gemm as gemm
from xflow.ops import matmul as matmul
from xflow.ops import normalize as normalize
from xflow.ops import pad as pad
from xflow.ops import parts as parts
from xflow.ops import pool as pool
from xflow.ops import reduce as reduce
from xflow.ops import shape as shape
from xflow.ops import squeeze as squeeze
