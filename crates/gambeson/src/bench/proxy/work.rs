//! The service behind the proxies, and what its client measures.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// What a connection begins with: what to do, and with how many bytes.
const DOWN: u8 = 0;
const UP: u8 = 1;
const ECHO: u8 = 2;
/// Bytes of a request and its answer.
const REQUEST: usize = 64;
/// Bytes that are read or written at once.
const PIECE: usize = 256 << 10;
/// Whoever says nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts the service; it ends with this process.
pub(super) fn serve() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::Builder::new().spawn(move || {
        for stream in listener.incoming().flatten() {
            // Who goes away early has told why at its own end.
            thread::spawn(move || drop(answer(stream)));
        }
    })?;
    Ok(address)
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut wish = [0; 9];
    stream.read_exact(&mut wish)?;
    let size = u64::from_le_bytes(wish[1..].try_into().expect("eight bytes"));
    match wish[0] {
        DOWN => write(&mut stream, size),
        UP => {
            read(&mut stream, size)?;
            stream.write_all(&[UP])
        }
        _ => {
            let mut request = [0; REQUEST];
            while stream.read_exact(&mut request).is_ok() {
                stream.write_all(&request)?;
            }
            Ok(())
        }
    }
}

fn write(stream: &mut TcpStream, size: u64) -> io::Result<()> {
    let piece = vec![7; PIECE];
    let mut left = size;
    while left > 0 {
        let now = left.min(PIECE as u64);
        stream.write_all(&piece[..now as usize])?;
        left -= now;
    }
    Ok(())
}

fn read(stream: &mut TcpStream, size: u64) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut left = size;
    while left > 0 {
        let most = left.min(PIECE as u64);
        match stream.read(&mut piece[..most as usize])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => left -= count as u64,
        }
    }
    Ok(())
}

fn begin(address: SocketAddr, what: u8, size: u64) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut wish = [what; 9];
    wish[1..].copy_from_slice(&size.to_le_bytes());
    stream.write_all(&wish)?;
    Ok(stream)
}

/// Bytes per second from the service.
pub(super) fn down(address: SocketAddr, size: u64) -> io::Result<f64> {
    let mut stream = begin(address, DOWN, size)?;
    let began = Instant::now();
    read(&mut stream, size)?;
    Ok(size as f64 / began.elapsed().as_secs_f64())
}

/// Bytes per second to the service, until it has them all.
pub(super) fn up(address: SocketAddr, size: u64) -> io::Result<f64> {
    let mut stream = begin(address, UP, size)?;
    let began = Instant::now();
    write(&mut stream, size)?;
    stream.read_exact(&mut [0])?;
    Ok(size as f64 / began.elapsed().as_secs_f64())
}

/// Seconds for a request and its answer on a connection that there is, the median.
pub(super) fn round_trip(address: SocketAddr, count: usize) -> io::Result<f64> {
    let mut stream = begin(address, ECHO, 0)?;
    let mut request = [1; REQUEST];
    let mut once = || {
        let began = Instant::now();
        stream.write_all(&request)?;
        stream.read_exact(&mut request)?;
        Ok(began.elapsed().as_secs_f64())
    };
    for _ in 0..count / 10 {
        once()?;
    }
    let times = (0..count).map(|_| once()).collect::<io::Result<Vec<_>>>()?;
    Ok(super::median(&times))
}

/// Seconds for a connection, a request on it, its answer and the end, the median.
pub(super) fn connection(address: SocketAddr, count: usize) -> io::Result<f64> {
    let once = || {
        let began = Instant::now();
        let mut stream = begin(address, ECHO, 0)?;
        let mut request = [1; REQUEST];
        stream.write_all(&request)?;
        stream.read_exact(&mut request)?;
        stream.shutdown(std::net::Shutdown::Write)?;
        match stream.read(&mut request)? {
            0 => Ok(began.elapsed().as_secs_f64()),
            _ => Err(io::Error::other("more came than was asked for")),
        }
    };
    let times = (0..count).map(|_| once()).collect::<io::Result<Vec<_>>>()?;
    Ok(super::median(&times))
}
