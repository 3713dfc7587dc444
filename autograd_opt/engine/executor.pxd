"""GraphExecutor: the one backward loop."""

from autograd_opt.engine.task cimport GraphTask

cpdef object run(GraphTask task, list roots, list cotangents, inputs, bint accumulate, accumulator)
