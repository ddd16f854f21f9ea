//! Raster widgets: they turn columns of numbers into cells. No allocation, total for every size.
