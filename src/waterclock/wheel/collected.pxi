# A part of _objects.pyx: how a wheel gives its timers up, and shows them to the garbage collector.

cdef void let_go(TimingWheel wheel):
    """End all timers: first the wheel is emptied, then the references are given up."""
    lock()
    cdef Entry *entry = wheel_empty(&wheel.wheel)
    unlock()
    cdef PyObject *callback
    cdef PyObject *argument
    cdef PyObject *handle
    while entry != NULL:
        callback, argument = <PyObject *><size_t>entry.tick, <PyObject *>entry.argument
        entry.tick = 0
        handle = HANDLE_OF(entry)
        entry = <Entry *>entry.place
        Py_DECREF(<object>callback)
        Py_XDECREF(argument)
        Py_DECREF(<object>handle)


cdef int collect_handle(Entry *entry, void *handles) noexcept:
    return PyList_Append(<object><PyObject *>handles, <object>HANDLE_OF(entry))


cdef int traverse(PyObject *self, visitproc visit, void *argument) noexcept:
    cdef int stop = traverse_members(self, visit, argument)
    return stop if stop else wheel_traverse(&(<TimingWheel>self).wheel, visit, argument)


cdef int clear(PyObject *self) noexcept:
    let_go(<TimingWheel>self)
    return clear_members(self)
