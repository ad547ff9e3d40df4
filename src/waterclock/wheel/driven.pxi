# A part of _objects.pyx: the wheel's steps for a compiled driver. They are declared in _objects.pxd.

cdef bint is_wheel(thing) noexcept:
    return type(thing) is TimingWheel


cdef object add_to(wheel, int64_t deadline, callback, PyObject *argument):
    """`add_at`, of a deadline that lies within MAX_TIME."""
    return (<TimingWheel>wheel).schedule(deadline, callback, argument)


cdef int move_within(wheel, handle, int64_t deadline, int64_t *before) except -1:
    """`_move`; 0 where it waits no more. `before` is where it was."""
    before[0] = (<TimerHandle?>handle).entry.deadline
    return (<TimingWheel>wheel).move(<TimerHandle>handle, deadline)


cdef int hand_on(TimingWheel wheel, PyObject *result) except -1:
    """To the driver, with the reference."""
    returned = <object>result
    Py_DECREF(returned)
    wheel._returned(returned)
    return 1


def _when_spare(listener):
    """Call `listener()`, in whatever thread, when there begins to be something that `_tidy` gives back in a second."""
    reserve_listen(listener)


def _tidy():
    """Give memory back that nobody took for a second; whether there is more that will be, when its second is over."""
    lock()
    cdef bint more = slab_tidy()
    unlock()
    return more
