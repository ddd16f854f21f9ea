//! SVG to PNG with the bundled font. The SVG decides the picture; this only rasterises it.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

/// Pixels for one unit of the SVG's own size.
const SCALE: f32 = 1.5;

/// The font, regular and bold.
const FONTS: [&[u8]; 2] = [
    include_bytes!("../../assets/font/DejaVuSansMono.ttf"),
    include_bytes!("../../assets/font/DejaVuSansMono-Bold.ttf"),
];

/// A rasteriser that knows the bundled font and no other.
pub(crate) fn options() -> Options<'static> {
    let mut options = Options { font_family: "DejaVu Sans Mono".to_owned(), ..Options::default() };
    let fonts = Arc::make_mut(&mut options.fontdb);
    for font in FONTS {
        fonts.load_font_data(font.to_vec());
    }
    fonts.set_monospace_family("DejaVu Sans Mono");
    options
}

/// Draws `svg`; the error says what is wrong with it.
pub(crate) fn png(svg: &str, options: &Options<'_>) -> Result<Vec<u8>, String> {
    let tree = Tree::from_str(svg, options).map_err(|e| format!("the SVG cannot be read: {e}"))?;
    let size = tree.size();
    let (width, height) = ((size.width() * SCALE).ceil() as u32, (size.height() * SCALE).ceil() as u32);
    let mut pixels = Pixmap::new(width, height).ok_or_else(|| format!("no picture of {width} x {height}"))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|e| format!("the PNG cannot be written: {e}"))
}
