/* A bucket in use, as both compiled wheels give it out; occupancy.py makes mappings of them. */
#ifndef WATERCLOCK_OCCUPANCY_H
#define WATERCLOCK_OCCUPANCY_H

#include <stdint.h>
#include <stdlib.h>

typedef struct {
    uint32_t level, slot, live;
} Used;

#endif
