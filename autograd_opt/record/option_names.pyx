"""Let the constructor of a graph name the option that was meant; nothing is asked unless it has failed."""

from cpython.object cimport PyObject

from autograd_opt.abi cimport ctorch     # for the C text below

cdef extern from *:
    """
    static initproc ao_plain_init = NULL;
    static PyObject *ao_refuse_options = NULL;

    static int ao_named_init(PyObject *self, PyObject *args, PyObject *kwargs) {
        PyObject *done;
        ao_raised raised;
        if (ao_plain_init(self, args, kwargs) == 0) return 0;
        if (kwargs == NULL || !PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
        raised = ao_put_aside();
        done = PyObject_CallFunctionObjArgs(ao_refuse_options, (PyObject *)Py_TYPE(self), kwargs, NULL);
        if (done != NULL) {
            Py_DECREF(done);
            ao_raise_again(raised);                     /* it knows them all: the first error stands */
        } else {
            ao_drop_raised(raised);
        }
        return -1;
    }

    static void ao_name_options(PyObject *cls, PyObject *refuse) {
        PyTypeObject *t = (PyTypeObject *)cls;
        if (t->tp_init == ao_named_init) return;
        ao_plain_init = t->tp_init;
        Py_INCREF(refuse);
        ao_refuse_options = refuse;
        t->tp_init = ao_named_init;
        PyType_Modified(t);
    }
    """
    void ao_name_options(PyObject *cls, PyObject *refuse)


def name_options(type cls, refuse):
    """Where the constructor of `cls` raises a TypeError, ask `refuse(cls, keywords)` for a better one."""
    ao_name_options(<PyObject *>cls, <PyObject *>refuse)
